//! The primary's word on its state: from it the secondary says at a disaster what may be lost.

use super::PrimaryGroup;
use crate::{
    channel::FrameChannel,
    frame::{FrameBody, WordFrame},
    session::SessionState,
};
use array::format::WallNanoseconds;
use futures_util::future::select;
use std::{convert::Infallible, pin::pin, time::Duration};

/// Also of a group that is idle: a secondary cannot tell silence from loss.
const WORD_EVERY: Duration = Duration::from_secs(1);

impl PrimaryGroup {
    /// The state of the group now, for its secondary. The number is that of the last word that was sent.
    pub fn word(&self) -> WordFrame {
        let session = self.session.borrow();
        let exposure = session.exposure(self.world.now());
        WordFrame {
            number: self.promise.last_word(),
            said_at: WallNanoseconds::of(self.world.wall()),
            told: session.told().clone(),
            unconfirmed_bytes: exposure.bytes,
            unconfirmed_ms: u64::try_from(exposure.age.as_millis()).unwrap_or(u64::MAX),
            is_in_sync: session.is_in_sync() && !self.member.is_alone() && self.is_together(),
        }
    }

    /// Sends words as long as the channel runs: at its beginning, each second, and when the group is in sync again or goes
    /// on alone.
    pub(super) async fn send_words(&self, channel: &impl FrameChannel) -> Infallible {
        loop {
            let number = self.promise.begin_word(self.world.now());
            let word = self.word();
            assert_eq!(word.number, number, "words are numbered as they are sent");
            let (is_in_sync, next) = (word.is_in_sync, self.world.now() + WORD_EVERY);
            if channel.send(FrameBody::Word(word)).await.is_err() {
                // The receiver notices the end of the channel when it has taken what came before.
                return std::future::pending().await;
            }
            while self.world.now() < next && self.word().is_in_sync == is_in_sync {
                let changed = self.changed.notified();
                select(self.world.sleep_until(next), pin!(changed)).await;
            }
            // Nothing follows a hand over.
            while self.session.borrow().state() == SessionState::StoodDown {
                self.changed.notified().await;
            }
        }
    }
}
