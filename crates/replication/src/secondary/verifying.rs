//! The secondary's side of a comparison: a cut between two commands, and digests of it beside the stream.

use super::SecondaryGroup;
use crate::{
    channel::{ChannelEnd, FrameChannel},
    frame::{FrameBody, VerifyCutFrame, VerifyDigestsFrame, VerifyRangeFrame, VerifyReadyFrame},
    pass::PassPace,
    verification::{digests_of, verify_cut},
};
use array::error::Error;
use std::{cell::RefCell, collections::VecDeque};
use tokio::sync::Notify;

/// Ranges that wait at most: a primary asks for one after the other.
const WAITING_MAX: usize = 16;

/// Ranges that the primary wants digests of.
#[derive(Default)]
pub(super) struct VerifyQueue {
    wanted: RefCell<VecDeque<VerifyRangeFrame>>,
    added: Notify,
}

impl VerifyQueue {
    /// False if too many wait.
    pub fn add(&self, wanted: VerifyRangeFrame) -> bool {
        let mut waiting = self.wanted.borrow_mut();
        waiting.push_back(wanted);
        self.added.notify_one();
        waiting.len() <= WAITING_MAX
    }

    pub fn clear(&self) {
        self.wanted.borrow_mut().clear();
    }
}

impl SecondaryGroup {
    /// Takes the cut of a comparison: all that was begun is stable.
    pub(super) async fn take_verify_cut(
        &self,
        channel: &impl FrameChannel,
        VerifyCutFrame { number }: VerifyCutFrame,
    ) -> Result<(), ChannelEnd> {
        let (ids, cut) = (self.member.ids(), verify_cut(&self.member));
        self.verify_queue.clear();
        let refused = if self.member.is_in_pass() || self.is_within_command.get() || self.is_in_doubt.get() {
            "it may have a part of the last write alone until the next one comes; try again then".to_owned()
        } else {
            match self.member.pool.take_cut_of_following_replica(&ids, cut).await {
                Ok(()) => String::new(),
                Err(Error::StampTaken { .. }) => {
                    "another point of its volumes has the stamp of the last write; try again after the next one".to_owned()
                }
                Err(error) => error.to_string(),
            }
        };
        channel.send(FrameBody::VerifyReady(VerifyReadyFrame { number, refused: one_line(&refused) })).await
    }

    /// Deletes the cut of a comparison that has ended, or that another process began.
    pub(super) async fn delete_verify_cut(&self) -> Result<(), Error> {
        self.verify_queue.clear();
        self.member.pool.delete_cut(&self.member.ids(), verify_cut(&self.member)).await
    }

    /// Answers what the primary wants to know, beside the stream.
    pub(super) async fn answer_verify(&self, channel: &impl FrameChannel) -> std::convert::Infallible {
        let mut pace = PassPace::new(&self.world, &self.member.pool);
        loop {
            let next = self.verify_queue.wanted.borrow_mut().pop_front();
            let Some(wanted) = next else {
                self.verify_queue.added.notified().await;
                continue;
            };
            let answer = match digests_of((&self.world, &self.member), &wanted, &mut pace).await {
                Ok(Some(digests)) => {
                    VerifyDigestsFrame { number: wanted.number, digests, failed: String::new() }
                }
                Ok(None) => failed(wanted.number, "there is no such range here"),
                Err(error) => failed(wanted.number, &error.to_string()),
            };
            if channel.send(FrameBody::VerifyDigests(answer)).await.is_err() {
                // The receiver notices the end of the channel.
                return std::future::pending().await;
            }
        }
    }
}

fn failed(number: u64, why: &str) -> VerifyDigestsFrame {
    VerifyDigestsFrame { number, digests: Vec::new(), failed: one_line(why) }
}

/// A text as frames have it.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    plain.chars().take(250).collect()
}
