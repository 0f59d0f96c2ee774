//! Java's hash codes and the order its maps are walked in.

use super::super::java::{HashOrder, compare, map_order, string_hash};

#[test]
fn strings_hash_and_compare_by_utf16_unit() {
    assert_eq!(string_hash(""), 0);
    assert_eq!(string_hash("topic1"), -868_034_334);
    // U+FFFD is one unit above the surrogates that make up U+1F600.
    assert_eq!(compare("\u{fffd}", "\u{1f600}"), std::cmp::Ordering::Greater);
    assert_eq!(compare("a", "b"), std::cmp::Ordering::Less);
}

#[test]
fn a_small_map_is_walked_by_bucket() {
    let names = ["topic3", "consumer0", "topic1", "t4", "consumer4", "topic2", "consumer2"];
    let order = map_order(names.map(|name| (string_hash(name), name)));
    // Buckets 6, 13, 0, 0, 9, 1, 11.
    assert_eq!(order, ["topic1", "t4", "topic2", "topic3", "consumer4", "consumer2", "consumer0"]);
}

#[test]
fn growing_keeps_the_order_inside_a_bucket() {
    // All of bucket 0 in a table of 16. Nine in one bucket double a table below 64, and so does a thirteenth entry.
    let order = map_order((0..13).map(|i| (i * 16, i)));
    assert_eq!(order, [0, 2, 4, 6, 8, 10, 12, 1, 3, 5, 7, 9, 11]);
}

#[test]
fn a_removed_entry_is_gone_even_after_growth() {
    let mut table = HashOrder::new();
    let tickets: Vec<_> = (0..40).map(|i| table.insert(i, i)).collect();
    for ticket in &tickets[..39] {
        table.remove(*ticket);
    }
    assert_eq!(table.first(), Some(39));
    table.remove(tickets[39]);
    assert!(table.is_empty());
}
