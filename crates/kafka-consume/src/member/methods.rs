//! The methods that every public kind of member has, once: a macro, since each kind is a type of its own.
//!
//! A kind brings `start` (what protocol core it is made with) and `check_pattern`; everything else is here.

/// The methods that every kind of member has; each kind is a struct around a [`Builder`].
macro_rules! member_methods {
    ($kind:ident) => {
        impl $kind {
            /// A member of `group` that reads `topics`. It does not join yet: the first poll does.
            ///
            /// # Errors
            ///
            /// `InvalidRequest` for an empty group id, illegal or no topics, settings that cannot work (classic: a
            /// session timeout over the rebalance timeout, a heartbeat interval that is not below the session
            /// timeout), or a `group_id` in the configuration that differs. Where KIP-848 may be spoken the
            /// coordinator is asked whether it serves it: `UnsupportedApi` if it must and does not,
            /// `Authorization`, `Disconnected`, `Timeout`. Dropping the future leaves nothing behind.
            pub async fn subscribe(
                cluster: $crate::Cluster,
                config: $crate::ConsumerConfig,
                group: impl Into<String>,
                topics: impl IntoIterator<Item = impl Into<String>>,
            ) -> $crate::Result<Self> {
                let wanted = crate::member::Wanted::topics(topics)?;
                Self::start(cluster, config, group.into(), wanted).await
            }

            /// A member that reads every topic whose whole name matches `pattern`: in RE2 syntax and matched by
            /// the broker on KIP-848 (new topics come within about ten seconds), matched here by the `regex`
            /// crate on the classic protocol, anew with every metadata refresh. Internal topics never match.
            ///
            /// # Errors
            ///
            /// As [`subscribe`](Self::subscribe); `InvalidRequest` for a pattern that is empty or that this side
            /// has to match and cannot parse. One the broker cannot parse is an `InvalidRequest` of the first
            /// poll. Dropping the future leaves nothing behind.
            pub async fn subscribe_pattern(
                cluster: $crate::Cluster,
                config: $crate::ConsumerConfig,
                group: impl Into<String>,
                pattern: &str,
            ) -> $crate::Result<Self> {
                Self::check_pattern(pattern)?;
                let wanted = crate::member::Wanted::Pattern(pattern.to_owned());
                Self::start(cluster, config, group.into(), wanted).await
            }

            /// Whether offsets are committed by themselves: what a poll handed out counts as done when the next
            /// poll is called, and is stored every `auto_commit_interval_ms`, before partitions go, and at
            /// `leave`. An explicit commit of an older offset lasts until then, as in Java: seek to read again.
            /// Only what `on_revoke` commits itself is left as it is. Default: true. Turn it off where a
            /// transaction owns the offsets, and where workers process elsewhere and commit through the handle.
            pub fn auto_commit(mut self, on: bool) -> Self {
                self.member.warn_if_joined("auto_commit");
                self.member.auto_commit = on;
                self
            }

            /// Makes the member static (`group.instance.id`, KIP-345): a restart within the session timeout
            /// gets its partitions back without a rebalance. Default: none.
            pub fn instance_id(mut self, id: impl Into<String>) -> Self {
                self.member.warn_if_joined("instance_id");
                self.member.instance_id = Some(id.into());
                self
            }

            /// Who is told when partitions come and go.
            pub fn on_rebalance(mut self, listener: impl crate::RebalanceListener + 'static) -> Self {
                self.member.set_listener(listener);
                self
            }

            /// Joins with the first call; from then on carries rebalances through and returns up to
            /// `max_poll_records` records, as [`Consumer::poll`](crate::Consumer::poll) does. At most
            /// `rebalance_timeout_ms` may pass between the end of a poll and the next one, or the member leaves
            /// and `on_lost` runs at the start of the next poll, which joins anew.
            ///
            /// Heartbeats run in the background. A poll takes longer than `max_wait_ms` only while the listener
            /// runs.
            ///
            /// # Errors
            ///
            /// As `Consumer::poll`; and what the group refuses: `UnreleasedInstanceId` (retriable),
            /// `Authorization`, `UnsupportedApi`, `Fenced` (a fenced instance id is fatal), … `Closed` after
            /// `leave`.
            ///
            /// Dropping the future loses nothing. A callback it was in runs again in the next poll.
            pub async fn poll(&mut self) -> $crate::Result<$crate::Records> {
                self.member.poll().await
            }

            /// Replaces the topics read; takes effect with the next heartbeat or join.
            ///
            /// # Errors
            ///
            /// `InvalidRequest` for an illegal topic name, or for none at all.
            pub fn resubscribe(
                &mut self,
                topics: impl IntoIterator<Item = impl Into<String>>,
            ) -> $crate::Result<()> {
                let wanted = crate::member::Wanted::topics(topics)?;
                self.member.resubscribe(wanted);
                Ok(())
            }

            /// Runs the listener's `on_revoke`, commits what was handed out (with auto-commit), and leaves the
            /// group; a static member parks its partitions. Then every connection is closed, and polls answer
            /// `Closed`. Bounded: with the coordinator down it gives up after 5 s. Idempotent.
            ///
            /// Dropping the future leaves the member on its way out; call it again to go on.
            pub async fn leave(&mut self) -> $crate::Result<()> {
                self.member.leave(true).await
            }

            /// As [`leave`](Self::leave), without the commit.
            pub async fn leave_without_commit(&mut self) -> $crate::Result<()> {
                self.member.leave(false).await
            }

            /// The member's id as of the last poll; empty before it has one.
            pub fn member_id(&self) -> &str {
                self.member.member_id()
            }

            /// The partitions owned now.
            pub fn assignment(&self) -> Vec<(String, i32)> {
                self.member.consumer.assignment()
            }

            /// As [`Consumer::put_back`](crate::Consumer::put_back).
            pub fn put_back(&mut self, rest: $crate::Records) {
                self.member.consumer.put_back(rest);
            }

            /// As [`Consumer::seek`](crate::Consumer::seek).
            ///
            /// # Errors
            ///
            /// `NotAssigned` naming the partition; `InvalidRequest` for a negative offset.
            pub fn seek(&mut self, topic: &str, partition: i32, offset: i64) -> $crate::Result<()> {
                self.member.consumer.seek(topic, partition, offset)
            }

            /// As [`Consumer::seek_to_committed`](crate::Consumer::seek_to_committed).
            ///
            /// # Errors
            ///
            /// `Authorization`, `Fenced`, `Timeout`; then no position has changed. Dropping the future leaves
            /// every position as it was.
            pub async fn seek_to_committed(&mut self) -> $crate::Result<()> {
                self.member.consumer.seek_to_committed().await
            }

            /// As [`Consumer::seek_to_beginning`](crate::Consumer::seek_to_beginning).
            ///
            /// # Errors
            ///
            /// As there. Dropping the future leaves the look-ups going on.
            pub async fn seek_to_beginning(
                &mut self,
                partitions: impl IntoIterator<Item = (String, i32)>,
            ) -> $crate::Result<()> {
                self.member.consumer.seek_to_beginning(partitions).await
            }

            /// As [`Consumer::seek_to_end`](crate::Consumer::seek_to_end).
            ///
            /// # Errors
            ///
            /// As there. Dropping the future leaves the look-ups going on.
            pub async fn seek_to_end(
                &mut self,
                partitions: impl IntoIterator<Item = (String, i32)>,
            ) -> $crate::Result<()> {
                self.member.consumer.seek_to_end(partitions).await
            }

            /// As [`Consumer::seek_to_timestamp`](crate::Consumer::seek_to_timestamp).
            ///
            /// # Errors
            ///
            /// As there. Dropping the future leaves the look-ups going on.
            pub async fn seek_to_timestamp(
                &mut self,
                partitions: impl IntoIterator<Item = (String, i32)>,
                millis: i64,
            ) -> $crate::Result<()> {
                self.member.consumer.seek_to_timestamp(partitions, millis).await
            }

            /// As [`Consumer::pause`](crate::Consumer::pause); a pause lasts while the partition stays owned.
            pub fn pause(&mut self, topic: &str, partition: i32) {
                self.member.consumer.pause(topic, partition);
            }

            /// As [`Consumer::resume`](crate::Consumer::resume).
            pub fn resume(&mut self, topic: &str, partition: i32) {
                self.member.consumer.resume(topic, partition);
            }

            /// The paused partitions, in order.
            pub fn paused(&self) -> Vec<(String, i32)> {
                self.member.consumer.paused()
            }

            /// As [`Consumer::position`](crate::Consumer::position).
            pub fn position(&self, topic: &str, partition: i32) -> Option<i64> {
                self.member.consumer.position(topic, partition)
            }

            /// As [`Consumer::lag`](crate::Consumer::lag).
            pub fn lag(&self, topic: &str, partition: i32) -> Option<i64> {
                self.member.consumer.lag(topic, partition)
            }

            /// As [`Consumer::positions`](crate::Consumer::positions); with
            /// [`group_metadata`](Self::group_metadata) it is what a transactional producer takes.
            pub fn positions(&self) -> $crate::Positions {
                self.member.consumer.positions()
            }

            /// As [`Consumer::caught_up`](crate::Consumer::caught_up).
            pub fn caught_up(&self) -> bool {
                self.member.consumer.caught_up()
            }

            /// As [`Consumer::stopped`](crate::Consumer::stopped).
            pub fn stopped(&self) -> Vec<((String, i32), $crate::ErrorKind)> {
                self.member.consumer.stopped()
            }

            /// Who this member is: group, epoch or generation, member id, instance id.
            ///
            /// # Errors
            ///
            /// `Fenced` while it is not in its group.
            pub fn group_metadata(&self) -> $crate::Result<$crate::GroupMetadata> {
                self.member.consumer.group_metadata()
            }

            /// As [`Consumer::commit`](crate::Consumer::commit), in the member's own name.
            ///
            /// # Errors
            ///
            /// As there; `Fenced` as a whole while the member is not in its group.
            pub async fn commit(&mut self) -> $crate::Result<Vec<((String, i32), $crate::Result<()>)>> {
                self.member.consumer.commit().await
            }

            /// As [`Consumer::commit_offsets`](crate::Consumer::commit_offsets), in the member's own name.
            ///
            /// # Errors
            ///
            /// As there; `Fenced` as a whole while the member is not in its group.
            pub async fn commit_offsets(
                &mut self,
                offsets: impl IntoIterator<Item = ((String, i32), $crate::CommittedOffset)>,
            ) -> $crate::Result<Vec<((String, i32), $crate::Result<()>)>> {
                self.member.consumer.commit_offsets(offsets).await
            }

            /// As [`Consumer::committed`](crate::Consumer::committed).
            ///
            /// # Errors
            ///
            /// As there. Dropping the future changes nothing.
            pub async fn committed(
                &self,
            ) -> $crate::Result<std::collections::HashMap<(String, i32), $crate::CommittedOffset>> {
                self.member.consumer.committed().await
            }

            /// As [`Consumer::beginning_offsets`](crate::Consumer::beginning_offsets).
            ///
            /// # Errors
            ///
            /// As there. Dropping the future changes nothing.
            pub async fn beginning_offsets(
                &self,
                partitions: impl IntoIterator<Item = (String, i32)>,
            ) -> $crate::Result<std::collections::HashMap<(String, i32), i64>> {
                self.member.consumer.beginning_offsets(partitions).await
            }

            /// As [`Consumer::end_offsets`](crate::Consumer::end_offsets).
            ///
            /// # Errors
            ///
            /// As there. Dropping the future changes nothing.
            pub async fn end_offsets(
                &self,
                partitions: impl IntoIterator<Item = (String, i32)>,
            ) -> $crate::Result<std::collections::HashMap<(String, i32), i64>> {
                self.member.consumer.end_offsets(partitions).await
            }

            /// As [`Consumer::offsets_for_times`](crate::Consumer::offsets_for_times).
            ///
            /// # Errors
            ///
            /// As there. Dropping the future changes nothing.
            pub async fn offsets_for_times(
                &self,
                times: impl IntoIterator<Item = ((String, i32), i64)>,
            ) -> $crate::Result<std::collections::HashMap<(String, i32), Option<(i64, i64)>>> {
                self.member.consumer.offsets_for_times(times).await
            }

            /// A handle for listeners, workers and other tasks.
            pub fn handle(&self) -> $crate::ConsumerHandle {
                self.member.consumer.handle()
            }

            /// The records one by one; rebalances are carried through between batches.
            pub fn stream(&mut self) -> $crate::RecordStream<'_> {
                $crate::RecordStream::of_member(&mut self.member)
            }

            /// As [`stream`](Self::stream), owning the member.
            pub fn into_stream(mut self) -> $crate::OwnedRecordStream<Self> {
                let reader = crate::stream::Reader::of_member(&mut self.member);
                $crate::OwnedRecordStream::with(reader, self)
            }

            /// As [`Consumer::metrics`](crate::Consumer::metrics).
            pub fn metrics(&self) -> $crate::ConsumerMetrics {
                self.member.consumer.metrics()
            }
        }
    };
}
