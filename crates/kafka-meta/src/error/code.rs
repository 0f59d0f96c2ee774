//! Kafka's error codes by number and name.
//!
//! A code is kept as the number the broker sent: one this table does not list survives as itself.

use std::fmt;

use super::ErrorKind;

/// A broker's error code; displays as Kafka's own name of it with its number, or as the number alone.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ErrorCode(i16);

impl ErrorCode {
    /// -1 in Kafka's table of errors.
    pub const UNKNOWN_SERVER_ERROR: ErrorCode = ErrorCode(-1);
    /// 0 in Kafka's table of errors.
    pub const NONE: ErrorCode = ErrorCode(0);
    /// 1 in Kafka's table of errors.
    pub const OFFSET_OUT_OF_RANGE: ErrorCode = ErrorCode(1);
    /// 2 in Kafka's table of errors.
    pub const CORRUPT_MESSAGE: ErrorCode = ErrorCode(2);
    /// 3 in Kafka's table of errors.
    pub const UNKNOWN_TOPIC_OR_PARTITION: ErrorCode = ErrorCode(3);
    /// 4 in Kafka's table of errors.
    pub const INVALID_FETCH_SIZE: ErrorCode = ErrorCode(4);
    /// 5 in Kafka's table of errors.
    pub const LEADER_NOT_AVAILABLE: ErrorCode = ErrorCode(5);
    /// 6 in Kafka's table of errors.
    pub const NOT_LEADER_OR_FOLLOWER: ErrorCode = ErrorCode(6);
    /// 7 in Kafka's table of errors.
    pub const REQUEST_TIMED_OUT: ErrorCode = ErrorCode(7);
    /// 8 in Kafka's table of errors.
    pub const BROKER_NOT_AVAILABLE: ErrorCode = ErrorCode(8);
    /// 9 in Kafka's table of errors.
    pub const REPLICA_NOT_AVAILABLE: ErrorCode = ErrorCode(9);
    /// 10 in Kafka's table of errors.
    pub const MESSAGE_TOO_LARGE: ErrorCode = ErrorCode(10);
    /// 11 in Kafka's table of errors.
    pub const STALE_CONTROLLER_EPOCH: ErrorCode = ErrorCode(11);
    /// 12 in Kafka's table of errors.
    pub const OFFSET_METADATA_TOO_LARGE: ErrorCode = ErrorCode(12);
    /// 13 in Kafka's table of errors.
    pub const NETWORK_EXCEPTION: ErrorCode = ErrorCode(13);
    /// 14 in Kafka's table of errors.
    pub const COORDINATOR_LOAD_IN_PROGRESS: ErrorCode = ErrorCode(14);
    /// 15 in Kafka's table of errors.
    pub const COORDINATOR_NOT_AVAILABLE: ErrorCode = ErrorCode(15);
    /// 16 in Kafka's table of errors.
    pub const NOT_COORDINATOR: ErrorCode = ErrorCode(16);
    /// 17 in Kafka's table of errors.
    pub const INVALID_TOPIC_EXCEPTION: ErrorCode = ErrorCode(17);
    /// 18 in Kafka's table of errors.
    pub const RECORD_LIST_TOO_LARGE: ErrorCode = ErrorCode(18);
    /// 19 in Kafka's table of errors.
    pub const NOT_ENOUGH_REPLICAS: ErrorCode = ErrorCode(19);
    /// 20 in Kafka's table of errors.
    pub const NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode = ErrorCode(20);
    /// 21 in Kafka's table of errors.
    pub const INVALID_REQUIRED_ACKS: ErrorCode = ErrorCode(21);
    /// 22 in Kafka's table of errors.
    pub const ILLEGAL_GENERATION: ErrorCode = ErrorCode(22);
    /// 23 in Kafka's table of errors.
    pub const INCONSISTENT_GROUP_PROTOCOL: ErrorCode = ErrorCode(23);
    /// 24 in Kafka's table of errors.
    pub const INVALID_GROUP_ID: ErrorCode = ErrorCode(24);
    /// 25 in Kafka's table of errors.
    pub const UNKNOWN_MEMBER_ID: ErrorCode = ErrorCode(25);
    /// 26 in Kafka's table of errors.
    pub const INVALID_SESSION_TIMEOUT: ErrorCode = ErrorCode(26);
    /// 27 in Kafka's table of errors.
    pub const REBALANCE_IN_PROGRESS: ErrorCode = ErrorCode(27);
    /// 28 in Kafka's table of errors.
    pub const INVALID_COMMIT_OFFSET_SIZE: ErrorCode = ErrorCode(28);
    /// 29 in Kafka's table of errors.
    pub const TOPIC_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(29);
    /// 30 in Kafka's table of errors.
    pub const GROUP_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(30);
    /// 31 in Kafka's table of errors.
    pub const CLUSTER_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(31);
    /// 32 in Kafka's table of errors.
    pub const INVALID_TIMESTAMP: ErrorCode = ErrorCode(32);
    /// 33 in Kafka's table of errors.
    pub const UNSUPPORTED_SASL_MECHANISM: ErrorCode = ErrorCode(33);
    /// 34 in Kafka's table of errors.
    pub const ILLEGAL_SASL_STATE: ErrorCode = ErrorCode(34);
    /// 35 in Kafka's table of errors.
    pub const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(35);
    /// 36 in Kafka's table of errors.
    pub const TOPIC_ALREADY_EXISTS: ErrorCode = ErrorCode(36);
    /// 37 in Kafka's table of errors.
    pub const INVALID_PARTITIONS: ErrorCode = ErrorCode(37);
    /// 38 in Kafka's table of errors.
    pub const INVALID_REPLICATION_FACTOR: ErrorCode = ErrorCode(38);
    /// 39 in Kafka's table of errors.
    pub const INVALID_REPLICA_ASSIGNMENT: ErrorCode = ErrorCode(39);
    /// 40 in Kafka's table of errors.
    pub const INVALID_CONFIG: ErrorCode = ErrorCode(40);
    /// 41 in Kafka's table of errors.
    pub const NOT_CONTROLLER: ErrorCode = ErrorCode(41);
    /// 42 in Kafka's table of errors.
    pub const INVALID_REQUEST: ErrorCode = ErrorCode(42);
    /// 43 in Kafka's table of errors.
    pub const UNSUPPORTED_FOR_MESSAGE_FORMAT: ErrorCode = ErrorCode(43);
    /// 44 in Kafka's table of errors.
    pub const POLICY_VIOLATION: ErrorCode = ErrorCode(44);
    /// 45 in Kafka's table of errors.
    pub const OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorCode = ErrorCode(45);
    /// 46 in Kafka's table of errors.
    pub const DUPLICATE_SEQUENCE_NUMBER: ErrorCode = ErrorCode(46);
    /// 47 in Kafka's table of errors.
    pub const INVALID_PRODUCER_EPOCH: ErrorCode = ErrorCode(47);
    /// 48 in Kafka's table of errors.
    pub const INVALID_TXN_STATE: ErrorCode = ErrorCode(48);
    /// 49 in Kafka's table of errors.
    pub const INVALID_PRODUCER_ID_MAPPING: ErrorCode = ErrorCode(49);
    /// 50 in Kafka's table of errors.
    pub const INVALID_TRANSACTION_TIMEOUT: ErrorCode = ErrorCode(50);
    /// 51 in Kafka's table of errors.
    pub const CONCURRENT_TRANSACTIONS: ErrorCode = ErrorCode(51);
    /// 52 in Kafka's table of errors.
    pub const TRANSACTION_COORDINATOR_FENCED: ErrorCode = ErrorCode(52);
    /// 53 in Kafka's table of errors.
    pub const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(53);
    /// 54 in Kafka's table of errors.
    pub const SECURITY_DISABLED: ErrorCode = ErrorCode(54);
    /// 55 in Kafka's table of errors.
    pub const OPERATION_NOT_ATTEMPTED: ErrorCode = ErrorCode(55);
    /// 56 in Kafka's table of errors.
    pub const KAFKA_STORAGE_ERROR: ErrorCode = ErrorCode(56);
    /// 57 in Kafka's table of errors.
    pub const LOG_DIR_NOT_FOUND: ErrorCode = ErrorCode(57);
    /// 58 in Kafka's table of errors.
    pub const SASL_AUTHENTICATION_FAILED: ErrorCode = ErrorCode(58);
    /// 59 in Kafka's table of errors.
    pub const UNKNOWN_PRODUCER_ID: ErrorCode = ErrorCode(59);
    /// 60 in Kafka's table of errors.
    pub const REASSIGNMENT_IN_PROGRESS: ErrorCode = ErrorCode(60);
    /// 61 in Kafka's table of errors.
    pub const DELEGATION_TOKEN_AUTH_DISABLED: ErrorCode = ErrorCode(61);
    /// 62 in Kafka's table of errors.
    pub const DELEGATION_TOKEN_NOT_FOUND: ErrorCode = ErrorCode(62);
    /// 63 in Kafka's table of errors.
    pub const DELEGATION_TOKEN_OWNER_MISMATCH: ErrorCode = ErrorCode(63);
    /// 64 in Kafka's table of errors.
    pub const DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: ErrorCode = ErrorCode(64);
    /// 65 in Kafka's table of errors.
    pub const DELEGATION_TOKEN_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(65);
    /// 66 in Kafka's table of errors.
    pub const DELEGATION_TOKEN_EXPIRED: ErrorCode = ErrorCode(66);
    /// 67 in Kafka's table of errors.
    pub const INVALID_PRINCIPAL_TYPE: ErrorCode = ErrorCode(67);
    /// 68 in Kafka's table of errors.
    pub const NON_EMPTY_GROUP: ErrorCode = ErrorCode(68);
    /// 69 in Kafka's table of errors.
    pub const GROUP_ID_NOT_FOUND: ErrorCode = ErrorCode(69);
    /// 70 in Kafka's table of errors.
    pub const FETCH_SESSION_ID_NOT_FOUND: ErrorCode = ErrorCode(70);
    /// 71 in Kafka's table of errors.
    pub const INVALID_FETCH_SESSION_EPOCH: ErrorCode = ErrorCode(71);
    /// 72 in Kafka's table of errors.
    pub const LISTENER_NOT_FOUND: ErrorCode = ErrorCode(72);
    /// 73 in Kafka's table of errors.
    pub const TOPIC_DELETION_DISABLED: ErrorCode = ErrorCode(73);
    /// 74 in Kafka's table of errors.
    pub const FENCED_LEADER_EPOCH: ErrorCode = ErrorCode(74);
    /// 75 in Kafka's table of errors.
    pub const UNKNOWN_LEADER_EPOCH: ErrorCode = ErrorCode(75);
    /// 76 in Kafka's table of errors.
    pub const UNSUPPORTED_COMPRESSION_TYPE: ErrorCode = ErrorCode(76);
    /// 77 in Kafka's table of errors.
    pub const STALE_BROKER_EPOCH: ErrorCode = ErrorCode(77);
    /// 78 in Kafka's table of errors.
    pub const OFFSET_NOT_AVAILABLE: ErrorCode = ErrorCode(78);
    /// 79 in Kafka's table of errors.
    pub const MEMBER_ID_REQUIRED: ErrorCode = ErrorCode(79);
    /// 80 in Kafka's table of errors.
    pub const PREFERRED_LEADER_NOT_AVAILABLE: ErrorCode = ErrorCode(80);
    /// 81 in Kafka's table of errors.
    pub const GROUP_MAX_SIZE_REACHED: ErrorCode = ErrorCode(81);
    /// 82 in Kafka's table of errors.
    pub const FENCED_INSTANCE_ID: ErrorCode = ErrorCode(82);
    /// 83 in Kafka's table of errors.
    pub const ELIGIBLE_LEADERS_NOT_AVAILABLE: ErrorCode = ErrorCode(83);
    /// 84 in Kafka's table of errors.
    pub const ELECTION_NOT_NEEDED: ErrorCode = ErrorCode(84);
    /// 85 in Kafka's table of errors.
    pub const NO_REASSIGNMENT_IN_PROGRESS: ErrorCode = ErrorCode(85);
    /// 86 in Kafka's table of errors.
    pub const GROUP_SUBSCRIBED_TO_TOPIC: ErrorCode = ErrorCode(86);
    /// 87 in Kafka's table of errors.
    pub const INVALID_RECORD: ErrorCode = ErrorCode(87);
    /// 88 in Kafka's table of errors.
    pub const UNSTABLE_OFFSET_COMMIT: ErrorCode = ErrorCode(88);
    /// 89 in Kafka's table of errors.
    pub const THROTTLING_QUOTA_EXCEEDED: ErrorCode = ErrorCode(89);
    /// 90 in Kafka's table of errors.
    pub const PRODUCER_FENCED: ErrorCode = ErrorCode(90);
    /// 91 in Kafka's table of errors.
    pub const RESOURCE_NOT_FOUND: ErrorCode = ErrorCode(91);
    /// 92 in Kafka's table of errors.
    pub const DUPLICATE_RESOURCE: ErrorCode = ErrorCode(92);
    /// 93 in Kafka's table of errors.
    pub const UNACCEPTABLE_CREDENTIAL: ErrorCode = ErrorCode(93);
    /// 94 in Kafka's table of errors.
    pub const INCONSISTENT_VOTER_SET: ErrorCode = ErrorCode(94);
    /// 95 in Kafka's table of errors.
    pub const INVALID_UPDATE_VERSION: ErrorCode = ErrorCode(95);
    /// 96 in Kafka's table of errors.
    pub const FEATURE_UPDATE_FAILED: ErrorCode = ErrorCode(96);
    /// 97 in Kafka's table of errors.
    pub const PRINCIPAL_DESERIALIZATION_FAILURE: ErrorCode = ErrorCode(97);
    /// 98 in Kafka's table of errors.
    pub const SNAPSHOT_NOT_FOUND: ErrorCode = ErrorCode(98);
    /// 99 in Kafka's table of errors.
    pub const POSITION_OUT_OF_RANGE: ErrorCode = ErrorCode(99);
    /// 100 in Kafka's table of errors.
    pub const UNKNOWN_TOPIC_ID: ErrorCode = ErrorCode(100);
    /// 101 in Kafka's table of errors.
    pub const DUPLICATE_BROKER_REGISTRATION: ErrorCode = ErrorCode(101);
    /// 102 in Kafka's table of errors.
    pub const BROKER_ID_NOT_REGISTERED: ErrorCode = ErrorCode(102);
    /// 103 in Kafka's table of errors.
    pub const INCONSISTENT_TOPIC_ID: ErrorCode = ErrorCode(103);
    /// 104 in Kafka's table of errors.
    pub const INCONSISTENT_CLUSTER_ID: ErrorCode = ErrorCode(104);
    /// 105 in Kafka's table of errors.
    pub const TRANSACTIONAL_ID_NOT_FOUND: ErrorCode = ErrorCode(105);
    /// 106 in Kafka's table of errors.
    pub const FETCH_SESSION_TOPIC_ID_ERROR: ErrorCode = ErrorCode(106);
    /// 107 in Kafka's table of errors.
    pub const INELIGIBLE_REPLICA: ErrorCode = ErrorCode(107);
    /// 108 in Kafka's table of errors.
    pub const NEW_LEADER_ELECTED: ErrorCode = ErrorCode(108);
    /// 109 in Kafka's table of errors.
    pub const OFFSET_MOVED_TO_TIERED_STORAGE: ErrorCode = ErrorCode(109);
    /// 110 in Kafka's table of errors.
    pub const FENCED_MEMBER_EPOCH: ErrorCode = ErrorCode(110);
    /// 111 in Kafka's table of errors.
    pub const UNRELEASED_INSTANCE_ID: ErrorCode = ErrorCode(111);
    /// 112 in Kafka's table of errors.
    pub const UNSUPPORTED_ASSIGNOR: ErrorCode = ErrorCode(112);
    /// 113 in Kafka's table of errors.
    pub const STALE_MEMBER_EPOCH: ErrorCode = ErrorCode(113);
    /// 114 in Kafka's table of errors.
    pub const MISMATCHED_ENDPOINT_TYPE: ErrorCode = ErrorCode(114);
    /// 115 in Kafka's table of errors.
    pub const UNSUPPORTED_ENDPOINT_TYPE: ErrorCode = ErrorCode(115);
    /// 116 in Kafka's table of errors.
    pub const UNKNOWN_CONTROLLER_ID: ErrorCode = ErrorCode(116);
    /// 117 in Kafka's table of errors.
    pub const UNKNOWN_SUBSCRIPTION_ID: ErrorCode = ErrorCode(117);
    /// 118 in Kafka's table of errors.
    pub const TELEMETRY_TOO_LARGE: ErrorCode = ErrorCode(118);
    /// 119 in Kafka's table of errors.
    pub const INVALID_REGISTRATION: ErrorCode = ErrorCode(119);
    /// 120 in Kafka's table of errors.
    pub const TRANSACTION_ABORTABLE: ErrorCode = ErrorCode(120);
    /// 121 in Kafka's table of errors.
    pub const INVALID_RECORD_STATE: ErrorCode = ErrorCode(121);
    /// 122 in Kafka's table of errors.
    pub const SHARE_SESSION_NOT_FOUND: ErrorCode = ErrorCode(122);
    /// 123 in Kafka's table of errors.
    pub const INVALID_SHARE_SESSION_EPOCH: ErrorCode = ErrorCode(123);
    /// 124 in Kafka's table of errors.
    pub const FENCED_STATE_EPOCH: ErrorCode = ErrorCode(124);
    /// 125 in Kafka's table of errors.
    pub const INVALID_VOTER_KEY: ErrorCode = ErrorCode(125);
    /// 126 in Kafka's table of errors.
    pub const DUPLICATE_VOTER: ErrorCode = ErrorCode(126);
    /// 127 in Kafka's table of errors.
    pub const VOTER_NOT_FOUND: ErrorCode = ErrorCode(127);
    /// 128 in Kafka's table of errors.
    pub const INVALID_REGULAR_EXPRESSION: ErrorCode = ErrorCode(128);
    /// 129 in Kafka's table of errors.
    pub const REBOOTSTRAP_REQUIRED: ErrorCode = ErrorCode(129);

    /// The number on the wire.
    pub fn value(self) -> i16 {
        self.0
    }

    /// Whether this is 0, no error.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// `Ok` for 0.
    ///
    /// # Errors
    ///
    /// The code itself, when it is not 0.
    pub fn check(self) -> Result<(), ErrorCode> {
        if self.is_none() { Ok(()) } else { Err(self) }
    }

    /// Whether Kafka calls the condition passing: asking again later may succeed.
    pub fn is_retriable(self) -> bool {
        TABLE.iter().any(|(code, _, retriable)| *code == self.0 && *retriable)
    }

    /// The kind of error the code stands for.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::OFFSET_OUT_OF_RANGE => ErrorKind::OffsetOutOfRange,
            Self::UNKNOWN_TOPIC_OR_PARTITION | Self::UNKNOWN_TOPIC_ID | Self::INCONSISTENT_TOPIC_ID => {
                ErrorKind::UnknownTopic
            }
            Self::REQUEST_TIMED_OUT => ErrorKind::Timeout,
            Self::TOPIC_AUTHORIZATION_FAILED
            | Self::GROUP_AUTHORIZATION_FAILED
            | Self::CLUSTER_AUTHORIZATION_FAILED
            | Self::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            | Self::DELEGATION_TOKEN_AUTHORIZATION_FAILED => ErrorKind::Authorization,
            Self::SASL_AUTHENTICATION_FAILED
            | Self::UNSUPPORTED_SASL_MECHANISM
            | Self::ILLEGAL_SASL_STATE => ErrorKind::Authentication,
            Self::UNSUPPORTED_VERSION => ErrorKind::UnsupportedApi,
            Self::INVALID_REQUEST => ErrorKind::InvalidRequest,
            Self::FENCED_INSTANCE_ID
            | Self::FENCED_MEMBER_EPOCH
            | Self::INVALID_PRODUCER_EPOCH
            | Self::PRODUCER_FENCED => ErrorKind::Fenced,
            Self::UNRELEASED_INSTANCE_ID => ErrorKind::UnreleasedInstanceId,
            Self::MESSAGE_TOO_LARGE | Self::RECORD_LIST_TOO_LARGE => ErrorKind::BatchTooLarge,
            Self::UNSUPPORTED_COMPRESSION_TYPE => ErrorKind::UnsupportedCodec,
            code => ErrorKind::Broker(code),
        }
    }

    /// Kafka's name of the code, where this table has it.
    pub fn name(self) -> Option<&'static str> {
        TABLE.iter().find(|(code, _, _)| *code == self.0).map(|(_, name, _)| *name)
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> Self {
        ErrorCode(code)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "error code {}", self.0),
        }
    }
}

/// Number, name, and whether Kafka marks it retriable.
const TABLE: &[(i16, &str, bool)] = &[
    (-1, "UNKNOWN_SERVER_ERROR", false),
    (0, "NONE", false),
    (1, "OFFSET_OUT_OF_RANGE", false),
    (2, "CORRUPT_MESSAGE", true),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", true),
    (4, "INVALID_FETCH_SIZE", false),
    (5, "LEADER_NOT_AVAILABLE", true),
    (6, "NOT_LEADER_OR_FOLLOWER", true),
    (7, "REQUEST_TIMED_OUT", true),
    (8, "BROKER_NOT_AVAILABLE", false),
    (9, "REPLICA_NOT_AVAILABLE", true),
    (10, "MESSAGE_TOO_LARGE", false),
    (11, "STALE_CONTROLLER_EPOCH", false),
    (12, "OFFSET_METADATA_TOO_LARGE", false),
    (13, "NETWORK_EXCEPTION", true),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", true),
    (15, "COORDINATOR_NOT_AVAILABLE", true),
    (16, "NOT_COORDINATOR", true),
    (17, "INVALID_TOPIC_EXCEPTION", false),
    (18, "RECORD_LIST_TOO_LARGE", false),
    (19, "NOT_ENOUGH_REPLICAS", true),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", true),
    (21, "INVALID_REQUIRED_ACKS", false),
    (22, "ILLEGAL_GENERATION", false),
    (23, "INCONSISTENT_GROUP_PROTOCOL", false),
    (24, "INVALID_GROUP_ID", false),
    (25, "UNKNOWN_MEMBER_ID", false),
    (26, "INVALID_SESSION_TIMEOUT", false),
    (27, "REBALANCE_IN_PROGRESS", true),
    (28, "INVALID_COMMIT_OFFSET_SIZE", false),
    (29, "TOPIC_AUTHORIZATION_FAILED", false),
    (30, "GROUP_AUTHORIZATION_FAILED", false),
    (31, "CLUSTER_AUTHORIZATION_FAILED", false),
    (32, "INVALID_TIMESTAMP", false),
    (33, "UNSUPPORTED_SASL_MECHANISM", false),
    (34, "ILLEGAL_SASL_STATE", false),
    (35, "UNSUPPORTED_VERSION", false),
    (36, "TOPIC_ALREADY_EXISTS", false),
    (37, "INVALID_PARTITIONS", false),
    (38, "INVALID_REPLICATION_FACTOR", false),
    (39, "INVALID_REPLICA_ASSIGNMENT", false),
    (40, "INVALID_CONFIG", false),
    (41, "NOT_CONTROLLER", true),
    (42, "INVALID_REQUEST", false),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", false),
    (44, "POLICY_VIOLATION", false),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", false),
    (46, "DUPLICATE_SEQUENCE_NUMBER", false),
    (47, "INVALID_PRODUCER_EPOCH", false),
    (48, "INVALID_TXN_STATE", false),
    (49, "INVALID_PRODUCER_ID_MAPPING", false),
    (50, "INVALID_TRANSACTION_TIMEOUT", false),
    (51, "CONCURRENT_TRANSACTIONS", true),
    (52, "TRANSACTION_COORDINATOR_FENCED", false),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", false),
    (54, "SECURITY_DISABLED", false),
    (55, "OPERATION_NOT_ATTEMPTED", false),
    (56, "KAFKA_STORAGE_ERROR", true),
    (57, "LOG_DIR_NOT_FOUND", false),
    (58, "SASL_AUTHENTICATION_FAILED", false),
    (59, "UNKNOWN_PRODUCER_ID", false),
    (60, "REASSIGNMENT_IN_PROGRESS", false),
    (61, "DELEGATION_TOKEN_AUTH_DISABLED", false),
    (62, "DELEGATION_TOKEN_NOT_FOUND", false),
    (63, "DELEGATION_TOKEN_OWNER_MISMATCH", false),
    (64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", false),
    (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", false),
    (66, "DELEGATION_TOKEN_EXPIRED", false),
    (67, "INVALID_PRINCIPAL_TYPE", false),
    (68, "NON_EMPTY_GROUP", false),
    (69, "GROUP_ID_NOT_FOUND", false),
    (70, "FETCH_SESSION_ID_NOT_FOUND", true),
    (71, "INVALID_FETCH_SESSION_EPOCH", true),
    (72, "LISTENER_NOT_FOUND", true),
    (73, "TOPIC_DELETION_DISABLED", false),
    (74, "FENCED_LEADER_EPOCH", true),
    (75, "UNKNOWN_LEADER_EPOCH", true),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", false),
    (77, "STALE_BROKER_EPOCH", false),
    (78, "OFFSET_NOT_AVAILABLE", true),
    (79, "MEMBER_ID_REQUIRED", false),
    (80, "PREFERRED_LEADER_NOT_AVAILABLE", true),
    (81, "GROUP_MAX_SIZE_REACHED", false),
    (82, "FENCED_INSTANCE_ID", false),
    (83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", true),
    (84, "ELECTION_NOT_NEEDED", true),
    (85, "NO_REASSIGNMENT_IN_PROGRESS", false),
    (86, "GROUP_SUBSCRIBED_TO_TOPIC", false),
    (87, "INVALID_RECORD", false),
    (88, "UNSTABLE_OFFSET_COMMIT", true),
    (89, "THROTTLING_QUOTA_EXCEEDED", true),
    (90, "PRODUCER_FENCED", false),
    (91, "RESOURCE_NOT_FOUND", false),
    (92, "DUPLICATE_RESOURCE", false),
    (93, "UNACCEPTABLE_CREDENTIAL", false),
    (94, "INCONSISTENT_VOTER_SET", false),
    (95, "INVALID_UPDATE_VERSION", false),
    (96, "FEATURE_UPDATE_FAILED", false),
    (97, "PRINCIPAL_DESERIALIZATION_FAILURE", false),
    (98, "SNAPSHOT_NOT_FOUND", false),
    (99, "POSITION_OUT_OF_RANGE", false),
    (100, "UNKNOWN_TOPIC_ID", true),
    (101, "DUPLICATE_BROKER_REGISTRATION", false),
    (102, "BROKER_ID_NOT_REGISTERED", false),
    (103, "INCONSISTENT_TOPIC_ID", true),
    (104, "INCONSISTENT_CLUSTER_ID", false),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", false),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", true),
    (107, "INELIGIBLE_REPLICA", false),
    (108, "NEW_LEADER_ELECTED", false),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", false),
    (110, "FENCED_MEMBER_EPOCH", false),
    (111, "UNRELEASED_INSTANCE_ID", false),
    (112, "UNSUPPORTED_ASSIGNOR", false),
    (113, "STALE_MEMBER_EPOCH", false),
    (114, "MISMATCHED_ENDPOINT_TYPE", false),
    (115, "UNSUPPORTED_ENDPOINT_TYPE", false),
    (116, "UNKNOWN_CONTROLLER_ID", false),
    (117, "UNKNOWN_SUBSCRIPTION_ID", false),
    (118, "TELEMETRY_TOO_LARGE", false),
    (119, "INVALID_REGISTRATION", false),
    (120, "TRANSACTION_ABORTABLE", false),
    (121, "INVALID_RECORD_STATE", false),
    (122, "SHARE_SESSION_NOT_FOUND", true),
    (123, "INVALID_SHARE_SESSION_EPOCH", true),
    (124, "FENCED_STATE_EPOCH", false),
    (125, "INVALID_VOTER_KEY", false),
    (126, "DUPLICATE_VOTER", false),
    (127, "VOTER_NOT_FOUND", false),
    (128, "INVALID_REGULAR_EXPRESSION", false),
    (129, "REBOOTSTRAP_REQUIRED", false),
];
