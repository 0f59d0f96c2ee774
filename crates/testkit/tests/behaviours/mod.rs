//! Behaviour functions: what a broker does, written once and run on the embedded cluster and on real Kafka.
//!
//! Each function is one row of the facts about real brokers and reaches its cluster only over the wire: three
//! nodes with ids 1 to 3, each in a rack of its own, the rack-aware replica selector on, no topic made by asking.

#![allow(dead_code, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

pub mod classic_groups;
pub mod config_admin;
pub mod consumer_groups;
pub mod coordinated;
pub mod epochs;
pub mod group_admin;
pub mod listing;
pub mod offsets;
pub mod producers;
pub mod ranges;
pub mod raw;
pub mod sessions;
pub mod topic_admin;
pub mod topic_ids;
pub mod transactions;
pub mod versions;

/// Hands every row to `$run!`, so that both test binaries run the same list.
#[macro_export]
macro_rules! every_row {
    ($run:ident) => {
        $run! {
            sessions::a_full_request_opens_a_session_and_lists_every_partition,
            sessions::a_full_request_without_partitions_opens_an_empty_session,
            sessions::an_idle_incremental_request_waits_and_is_empty,
            sessions::a_position_that_is_not_moved_gives_the_same_records_again,
            sessions::only_partitions_with_news_are_listed,
            sessions::a_partition_that_is_added_is_listed_though_it_is_empty,
            sessions::a_wrong_epoch_is_71_and_the_session_survives,
            sessions::an_unknown_session_is_70,
            sessions::a_forgotten_partition_is_gone,
            sessions::forgetting_the_last_partition_ends_the_session,
            sessions::epoch_minus_one_closes_the_session,
            sessions::epoch_minus_one_without_an_id_is_sessionless,
            sessions::names_in_a_session_of_ids_are_106_and_use_up_no_epoch,
            sessions::a_session_is_not_bound_to_its_connection,
            sessions::a_partition_named_twice_is_listed_once,
            sessions::an_unknown_partition_is_3_in_every_answer_and_cuts_no_wait,
            sessions::an_error_of_the_log_answers_at_once,
            topic_ids::an_unknown_topic_is_3_by_name_and_100_by_id,
            topic_ids::a_deleted_topic_in_a_session_is_3,
            topic_ids::a_recreated_topic_in_a_session_is_served_by_name_and_103_by_id,
            topic_ids::metadata_by_an_old_id_is_100,
            topic_ids::an_unknown_id_in_a_session_is_repeated_behind_the_good_ones_until_replaced,
            ranges::an_offset_outside_the_log_is_1_and_names_no_offsets,
            ranges::deleting_records_past_the_end_is_1_and_minus_one_means_the_high_watermark,
            ranges::a_fetch_at_the_end_waits_and_is_empty,
            ranges::an_offset_inside_a_batch_gives_the_whole_batch,
            ranges::only_the_first_partition_with_data_gets_a_batch_over_the_limits,
            ranges::later_batches_are_cut_at_the_limit,
            ranges::fetch_order_decides_who_gets_the_bytes,
            ranges::too_few_bytes_wait_the_whole_time,
            ranges::no_minimum_or_no_wait_answers_at_once,
            ranges::a_waiting_fetch_is_answered_by_a_produce,
            ranges::a_waiting_fetch_blocks_its_socket,
            epochs::a_node_without_a_replica_is_6_with_hints_from_v16,
            epochs::a_follower_serves_from_v11_and_does_nothing_else,
            epochs::a_wrong_current_epoch_is_74_or_75,
            epochs::a_fetch_that_waits_while_the_leader_moves_is_74_at_once,
            epochs::a_last_fetched_epoch_that_ended_below_the_offset_diverges,
            epochs::the_end_of_an_epoch_is_told,
            epochs::a_leader_names_the_replica_in_the_clients_rack_at_once,
            listing::each_target_finds_its_offset,
            listing::a_target_above_the_version_is_35,
            listing::old_versions_name_no_epoch_and_unknown_things_are_errors,
            listing::an_open_transaction_hides_everything_from_committed_readers,
            transactions::an_open_transaction_holds_the_last_stable_offset,
            transactions::a_committed_reader_waits_above_the_last_stable_offset,
            transactions::an_aborted_transaction_is_delivered_and_named,
            producers::a_repeated_batch_is_answered_alike_and_a_gap_is_45,
            producers::a_partition_that_was_not_added_is_48_then_120_then_added_by_itself,
            producers::ending_again_by_the_old_protocol,
            producers::ending_by_the_new_protocol_raises_the_epoch,
            producers::a_fenced_producer_is_47_or_90,
            producers::a_timeout_over_the_limit_is_50_and_an_unknown_topic_is_3,
            producers::a_transactions_offset_is_unstable_until_it_ends,
            producers::a_plain_commit_wins_over_an_earlier_one_in_a_transaction,
            producers::a_members_identity_is_checked_inside_a_transaction,
            coordinated::initialising_again_raises_the_epoch_once,
            coordinated::initialising_in_an_open_transaction_aborts_it_first,
            coordinated::an_abort_of_nothing_by_the_new_protocol_raises_the_epoch,
            coordinated::the_next_transaction_is_51_until_the_markers_are_written,
            coordinated::a_transaction_that_takes_too_long_is_aborted,
            offsets::an_anonymous_commit_is_stored_and_read_back,
            offsets::what_was_never_committed_is_minus_one_without_error,
            offsets::an_unknown_topic_and_long_metadata_are_refused,
            offsets::another_node_is_not_the_coordinator,
            offsets::each_key_of_a_coordinator_look_up_is_answered,
            classic_groups::an_empty_member_id_joins_at_once_up_to_v3_and_is_79_after,
            classic_groups::a_join_that_does_not_fit_is_refused,
            classic_groups::a_generation_is_joined_synced_and_beaten_for,
            classic_groups::a_second_member_makes_a_new_generation_of_both,
            classic_groups::a_waiting_join_blocks_its_socket,
            classic_groups::a_member_that_does_not_rejoin_is_left_behind,
            classic_groups::a_members_commits_are_checked_by_generation_and_state,
            classic_groups::leaving_is_answered_for_each_member,
            classic_groups::a_static_member_that_returns_keeps_the_generation,
            classic_groups::a_stable_group_is_described_with_what_its_members_have,
            consumer_groups::a_join_with_a_wrong_field_is_42_or_112,
            consumer_groups::an_assignment_is_told_once_and_repeated_to_a_full_request,
            consumer_groups::an_empty_list_of_topics_is_accepted,
            consumer_groups::a_second_member_waits_until_the_first_has_given_up,
            consumer_groups::epoch_0_of_a_live_member_is_a_rejoin,
            consumer_groups::a_static_member_is_replaced_only_after_it_has_parked,
            consumer_groups::a_members_commits_are_checked_by_id_and_epoch,
            consumer_groups::after_an_acknowledgement_the_old_epoch_commits_only_what_is_kept,
            consumer_groups::a_pattern_is_resolved_after_the_first_answer,
            consumer_groups::a_topic_made_later_is_assigned_then,
            topic_admin::each_new_topic_is_answered_with_its_own_code,
            topic_admin::a_new_topic_is_answered_with_its_id_numbers_and_settings,
            topic_admin::partitions_are_only_ever_added,
            topic_admin::a_deleted_topic_is_unknown_and_comes_back_as_another,
            topic_admin::a_topic_that_is_only_compacted_keeps_its_records,
            topic_admin::a_cluster_names_its_brokers_and_its_id,
            config_admin::a_topics_settings_name_where_they_come_from,
            config_admin::lists_are_changed_by_entries,
            config_admin::a_wrong_change_is_refused_and_changes_nothing,
            config_admin::a_broker_answers_for_itself,
            config_admin::a_groups_settings_have_the_brokers_limits,
            config_admin::a_groups_heartbeat_interval_is_in_force_at_once,
            group_admin::a_group_of_the_new_protocol_is_described_with_epochs_and_targets,
            group_admin::a_classic_group_is_described_with_its_members_bytes,
            group_admin::an_unknown_group_is_dead_up_to_v5_and_69_after,
            group_admin::groups_are_listed_by_their_coordinator_with_state_and_type,
            group_admin::only_a_group_without_members_can_be_deleted,
            group_admin::offsets_of_a_topic_in_use_cannot_be_deleted,
            group_admin::a_static_member_is_removed_by_its_instance,
            versions::a_version_too_high_is_35_in_a_v0_body_and_the_socket_lives,
            versions::an_empty_software_name_is_42,
            versions::another_request_in_an_unknown_version_closes_the_socket,
            versions::finalized_features_are_listed_from_v3_on,
        }
    };
}
