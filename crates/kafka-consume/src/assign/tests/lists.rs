//! A member's list of assignors: the names, the default, and what makes it cooperative.

use super::super::{Assignor, RebalanceProtocol};

#[test]
fn names_are_those_of_the_java_client() {
    let names = ["range", "roundrobin", "cooperative-sticky"];
    for name in names {
        let assignor = Assignor::from_name(name).unwrap();
        assert_eq!((assignor.name(), assignor.to_string().as_str()), (name, name));
    }
    for name in ["sticky", "RoundRobinAssigner", "Range", ""] {
        assert_eq!(Assignor::from_name(name), None);
    }
    assert_eq!(Assignor::DEFAULT, [Assignor::Range, Assignor::CooperativeSticky]);
}

#[test]
fn a_list_is_cooperative_only_when_every_assignor_in_it_is() {
    use Assignor::{CooperativeSticky, Range, RoundRobin};
    assert_eq!(RebalanceProtocol::of(&[CooperativeSticky]), RebalanceProtocol::Cooperative);
    for eager in [&Assignor::DEFAULT[..], &[Range], &[RoundRobin], &[CooperativeSticky, RoundRobin], &[]] {
        assert_eq!(RebalanceProtocol::of(eager), RebalanceProtocol::Eager, "{eager:?}");
    }
}
