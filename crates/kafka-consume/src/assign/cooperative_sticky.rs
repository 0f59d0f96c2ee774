//! Cooperative-sticky: the sticky core on the owned partitions of the subscriptions, then the withholding.
//!
//! Withholding is the point. A partition that changes hands is taken out of its new owner's list: the old owner
//! sees that it lost it, revokes, joins again, and only then is it given away. Skipping this delivers every record
//! of a moved partition twice, with no error anywhere.

use super::AssignorState;
use super::group::{Cells, Group};
use super::sticky::{self, Claim, Spread};

pub(super) fn assign(group: &Group<'_>, state: &mut AssignorState) -> (Vec<Vec<usize>>, usize) {
    let (lists, withheld) = withhold(unadjusted(group, state));
    state.restless = if withheld == 0 { 0 } else { state.restless.saturating_add(1) };
    (lists, withheld)
}

/// The spread aimed at, before what still has an old owner is taken out.
pub(super) fn unadjusted(group: &Group<'_>, state: &mut AssignorState) -> Spread {
    let claims: Vec<Claim> = group
        .members
        .iter()
        .map(|member| {
            let subscription = &member.subscription;
            Claim {
                partitions: group.claims(&subscription.owned),
                generation: subscription
                    .generation
                    .or_else(|| subscription.user_data.as_deref().map(generation_in_user_data)),
                written_generation: subscription.generation,
            }
        })
        .collect();
    sticky::assign(group, &claims, state)
}

pub(super) fn withhold(spread: Spread) -> (Vec<Vec<usize>>, usize) {
    let mut lists = spread.lists;
    let mut withheld = 0;
    for list in &mut lists {
        let aimed = list.len();
        list.retain(|&partition| !spread.moving.at(partition));
        withheld += aimed - list.len();
    }
    (lists, withheld)
}

/// Older members write their generation only here; what cannot be read is no generation.
fn generation_in_user_data(user_data: &[u8]) -> i32 {
    user_data.first_chunk().map_or(-1, |bytes| i32::from_be_bytes(*bytes))
}
