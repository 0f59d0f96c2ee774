//! The layouts of the answers a client may get, one line an API.
//!
//! Written in the words of [`layout`](super::layout), for the versions the codec knows. A test holds each line
//! to the codec: bytes made up along the layout are decoded to their end, in every version.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::layout::Layout;

/// No version of the API is flexible.
const NEVER: i16 = i16::MAX;

/// Answers that are refused undecoded, because no client asks for them: the requests of brokers and
/// controllers among themselves.
pub const WITHOUT_LAYOUT: &[i16] =
    &[27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, 83, 84, 85, 86, 87];

/// API key, first flexible version, layout.
pub(super) const TABLES: &[(i16, i16, &str)] = &[
    // Produce
    (0, 9, "[0-12:s 13+u [i h l l 5+l 8+[8+i 8+s] 8+s <0:10+{10+i 10+i}>]] i <0:10+[10+i 10+s 10+i 10+s]>"),
    // Fetch
    (
        1,
        12,
        "i 7+h 7+i [0-12:s 13+u [i h l l 5+l [l l] 11+i y <0:{12+i 12+l} 1:{12+i 12+i} 2:{l i}>]] \
         <0:16+[16+i 16+s 16+i 16+s]>",
    ),
    // ListOffsets
    (2, 6, "2+i [s [i h l l 4+i]]"),
    // Metadata
    (3, 9, "3+i [i s i 1+s] 2+s 1+i [h s 10+u 1+b [h i i 7+i (i) (i) 5+(i)] 8+i] 8-10:i 13+h"),
    // OffsetCommit
    (8, 8, "3+i [0-9:s 10+u [i h]]"),
    // OffsetFetch
    (
        9,
        6,
        "3+i 0-7:[0-7:s 0-7:[0-7:i 0-7:l 5-7:i 0-7:s 0-7:h]] 2-7:h 8+[8+s 8+[8-9:s 10+u 8+[8+i 8+l \
         8+i 8+s 8+h]] 8+h]",
    ),
    // FindCoordinator
    (10, 3, "1+i 0-3:h 1-3:s 0-3:i 0-3:s 0-3:i 4+[4+s 4+i 4+s 4+i 4+h 4+s]"),
    // JoinGroup
    (11, 6, "2+i h i 7+s s s 9+b s [s 5+s y]"),
    // Heartbeat
    (12, 4, "1+i h"),
    // LeaveGroup
    (13, 4, "1+i h 3+[3+s 3+s 3+h]"),
    // SyncGroup
    (14, 4, "1+i h 5+s 5+s y"),
    // DescribeGroups
    (15, 5, "1+i [h 6+s s s s s [s 4+s s s y y] 3+i]"),
    // ListGroups
    (16, 3, "1+i h [s s 4+s 5+s]"),
    // SaslHandshake
    (17, NEVER, "h (s)"),
    // ApiVersions
    (18, 3, "h [h h h] 1+i <0:[3+s 3+h 3+h] 1:l 2:[3+s 3+h 3+h] 3:b>"),
    // CreateTopics
    (19, 5, "i [s 7+u h s 5+i 5+h 5+[5+s 5+s 5+b 5+b 5+b] <0:h>]"),
    // DeleteTopics
    (20, 4, "i [s 6+u h 5+s]"),
    // DeleteRecords
    (21, 2, "i [s [i l h]]"),
    // InitProducerId
    (22, 2, "i h l h 6+l 6+h"),
    // OffsetForLeaderEpoch
    (23, 4, "i [s [h i i l]]"),
    // AddPartitionsToTxn
    (24, 3, "i 4+h 4+[4+s 4+[s [i h]]] 0-3:[s [i h]]"),
    // AddOffsetsToTxn
    (25, 3, "i h"),
    // EndTxn
    (26, 3, "i h 5+l 5+h"),
    // TxnOffsetCommit
    (28, 3, "i [s [i h]]"),
    // DescribeAcls
    (29, 2, "i h s [b s b [s s b b]]"),
    // CreateAcls
    (30, 2, "i [h s]"),
    // DeleteAcls
    (31, 2, "i [h s [h s b s b s s b b]]"),
    // DescribeConfigs
    (32, 4, "i [h s b s [s s b b b [s s b] 3+b 3+s]]"),
    // AlterConfigs
    (33, 2, "i [h s b s]"),
    // AlterReplicaLogDirs
    (34, 2, "i [s [i h]]"),
    // DescribeLogDirs
    (35, 2, "i 3+h [h s [s [i l l b]] 4+l 4+l]"),
    // SaslAuthenticate
    (36, 2, "h s y 1+l"),
    // CreatePartitions
    (37, 2, "i [s h s]"),
    // CreateDelegationToken
    (38, 2, "h s s 3+s 3+s l l l s y i"),
    // RenewDelegationToken
    (39, 2, "h l i"),
    // ExpireDelegationToken
    (40, 2, "h l i"),
    // DescribeDelegationToken
    (41, 2, "h [s s 3+s 3+s l l l s y [s s]] i"),
    // DeleteGroups
    (42, 2, "i [s h]"),
    // ElectLeaders
    (43, 2, "i 1+h [s [i h s]]"),
    // IncrementalAlterConfigs
    (44, 1, "i [h s b s]"),
    // AlterPartitionReassignments
    (45, 0, "i 1+b h s [s [i h s]]"),
    // ListPartitionReassignments
    (46, 0, "i h s [s [i (i) (i) (i)]]"),
    // OffsetDelete
    (47, NEVER, "h i [s [i h]]"),
    // DescribeClientQuotas
    (48, 1, "i h s [[s s] [s l]]"),
    // AlterClientQuotas
    (49, 1, "i [h s [s s]]"),
    // DescribeUserScramCredentials
    (50, 0, "i h s [s h s [b i]]"),
    // AlterUserScramCredentials
    (51, 0, "i [s h s]"),
    // DescribeQuorum
    (55, 0, "h 2+s [s [i h 2+s i i l [i 2+u l 1+l 1+l] [i 2+u l 1+l 1+l]]] 2+[2+i 2+[2+s 2+s 2+h]]"),
    // UpdateFeatures
    (57, 0, "i h s 0-1:[s h s]"),
    // DescribeCluster
    (60, 0, "i h s 1+b s i [i s i s 2+b] i"),
    // DescribeProducers
    (61, 0, "i [s [i h s [l i i l i l]]]"),
    // UnregisterBroker
    (64, 0, "i h s"),
    // DescribeTransactions
    (65, 0, "i [h s s i l l h [s (i)]]"),
    // ListTransactions
    (66, 0, "i h (s) [s l s]"),
    // ConsumerGroupHeartbeat
    (68, 0, "i h s s i i ?{[u (i)]}"),
    // ConsumerGroupDescribe
    (69, 0, "i [h s s s i i s [s s s i s s (s) s {[u s (i)]} {[u s (i)]} 1+b] i]"),
    // GetTelemetrySubscriptions
    (71, 0, "i h u i (b) i i b (s)"),
    // PushTelemetry
    (72, 0, "i h"),
    // ListConfigResources
    (74, 0, "i h [s 1+b]"),
    // DescribeTopicPartitions
    (75, 0, "i [h s u b [h i i i (i) (i) (i) (i) (i)] i] ?{s i}"),
    // ShareGroupHeartbeat
    (76, 0, "i h s s i i ?{[u (i)]}"),
    // ShareGroupDescribe
    (77, 0, "i [h s s s i i s [s s i s s (s) {[u s (i)]}] i]"),
    // ShareFetch
    (78, 0, "i h s i [u [i h s h s {i i} y [l l h]]] [i s i s]"),
    // ShareAcknowledge
    (79, 0, "i h s [u [i h s {i i}]] [i s i s]"),
    // DescribeShareGroupOffsets
    (90, 0, "i [s [s u [i l i h s]] h s]"),
    // AlterShareGroupOffsets
    (91, 0, "i h s [s u [i h s]]"),
    // DeleteShareGroupOffsets
    (92, 0, "i h s [s u h s]"),
];

static LAYOUTS: LazyLock<BTreeMap<i16, Layout>> = LazyLock::new(|| {
    let parsed =
        TABLES.iter().filter_map(|(key, flexible, text)| Some((*key, Layout::parse(*flexible, text)?)));
    parsed.collect()
});

/// The layout of an API's answers.
pub(super) fn layout(api_key: i16) -> Option<&'static Layout> {
    LAYOUTS.get(&api_key)
}
