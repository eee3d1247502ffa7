//! Mail records: deterministic content, and its verification.
//!
//! A record's content is derived from the database's seed, its key and its version. So no two records are
//! alike (deduplicating storage gains nothing), a record can be checked without stored state, and a foreign,
//! stale or torn record is detected.
//!
//! A body is random, hence incompressible; its compressible share, at the end, is blanks. Its first bytes are
//! always random, so that no two bodies are equal.

use crate::database::plan::profile::RecordForm;
use std::{fmt, num::NonZeroU8};
use thiserror::Error;
use world::Random;

/// Primary key of the mail table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailKey {
    /// From 0.
    pub mailbox: i32,
    /// From 0 in each mailbox.
    pub message: i64,
}

impl fmt::Display for MailKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {} of mailbox {}", self.message, self.mailbox)
    }
}

/// Change count of a record: 1 when inserted, incremented up to 255, then 1 again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordVersion(NonZeroU8);

impl RecordVersion {
    /// Version of a newly inserted record.
    pub const FIRST: Self = Self(NonZeroU8::MIN);

    /// Decodes a byte; 0 is no version.
    pub fn from_byte(byte: u8) -> Option<Self> {
        NonZeroU8::new(byte).map(Self)
    }

    /// Never 0.
    pub fn get(self) -> u8 {
        self.0.get()
    }

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).unwrap_or(NonZeroU8::MIN))
    }
}

/// All columns of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailRecord {
    pub key: MailKey,
    /// Synthetic time of arrival, in 100 ns since 1601 as mail systems count.
    pub received: i64,
    /// Holds the version.
    pub flags: i32,
    pub subject: String,
    pub body: Vec<u8>,
}

/// Bytes of the columns of fixed size: mailbox, message, received, flags.
const FIXED_BYTES: usize = 4 + 8 + 8 + 4;

/// Fills the compressible part of a body. Not zeros: some storage does not store those at all.
const FILLER: u8 = b' ';
/// Random bytes at the start of every body.
const UNIQUE_BYTES: usize = 16;

/// 1 January 2026 in units of 100 ns since 1601; messages arrive one a second from then on.
const FIRST_RECEIVED: i64 = 134_116_992_000_000_000;

/// A record whose content is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContentError {
    /// The record is missing although its insert was committed.
    #[error("{0} is gone: it was committed and never deleted")]
    Gone(MailKey),
    /// A record exists although it was deleted or never written.
    #[error("{0} exists although it was deleted or never written")]
    Unexpected(MailKey),
    /// The record has another version than the last committed one.
    #[error("{key} is in version {found}, not {expected}: a later write was lost")]
    WrongVersion {
        key: MailKey,
        /// The version read.
        found: i32,
        /// The version last committed.
        expected: u8,
    },
    /// The bytes do not match this key and version.
    #[error("{0} does not hold what was written to it")]
    Garbled(MailKey),
}

/// Generates and checks the records of one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMaker {
    seed: u64,
    form: RecordForm,
}

impl RecordMaker {
    /// A generator of records of `form`; another seed gives other content.
    pub fn new(seed: u64, form: RecordForm) -> Self {
        assert!(form.record_bytes >= 256, "a record has room for its fixed columns and subject");
        assert!(form.compressible_percent <= 100, "no more than all of a body can be dropped");
        Self { seed, form }
    }

    /// Size of each record, all columns together.
    pub fn record_bytes(&self) -> usize {
        self.form.record_bytes
    }

    pub fn make(&self, key: MailKey, version: RecordVersion) -> MailRecord {
        let mut record = MailRecord { key, received: 0, flags: 0, subject: String::new(), body: Vec::new() };
        self.make_in(&mut record, key, version);
        record
    }

    /// Like [`RecordMaker::make`], but reuses the memory of `record`.
    pub fn make_in(&self, record: &mut MailRecord, key: MailKey, version: RecordVersion) {
        let mut content = self.stream(key, version);
        let MailRecord { subject, body, .. } = record;
        subject.clear();
        push_subject(subject, key, content.next_u64());
        body.resize(self.form.record_bytes - FIXED_BYTES - subject.len(), FILLER);
        let droppable = body.len() * self.form.compressible_percent as usize / 100;
        let random = (body.len() - droppable).max(UNIQUE_BYTES.min(body.len()));
        content.fill(&mut body[..random]);
        body[random..].fill(FILLER);
        record.key = key;
        record.received = FIRST_RECEIVED + key.message * 10_000_000;
        record.flags = i32::from(version.get());
    }

    /// Checks that `record` is what was written to `key`, in version `expected`; with None, in the version
    /// the record states. Returns the record's version.
    pub fn check(
        &self,
        key: MailKey,
        expected: Option<RecordVersion>,
        record: &MailRecord,
    ) -> Result<RecordVersion, ContentError> {
        let found = u8::try_from(record.flags).ok().and_then(RecordVersion::from_byte);
        let Some(found) = found else { return Err(ContentError::Garbled(key)) };
        if *record != self.make(key, found) {
            return Err(ContentError::Garbled(key));
        }
        match expected {
            Some(expected) if expected != found => {
                Err(ContentError::WrongVersion { key, found: record.flags, expected: expected.get() })
            }
            _ => Ok(found),
        }
    }

    fn stream(&self, key: MailKey, version: RecordVersion) -> Random {
        // Odd multipliers spread neighbouring keys over the seed's bits; the generator's own seeding
        // (SplitMix64) does the rest.
        let place = (key.mailbox as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (key.message as u64).wrapping_mul(0xd6e8_feb8_6659_fd93)
            ^ u64::from(version.get()).wrapping_mul(0xa076_1d64_78bd_642f);
        Random::new(self.seed ^ place, "mail content")
    }
}

/// Appends the key as [`MailKey`] displays it, and 16 hex digits. Written by hand: `format!` takes longer
/// than the rest of the record.
fn push_subject(subject: &mut String, key: MailKey, tag: u64) {
    subject.push_str("message ");
    push_decimal(subject, key.message);
    subject.push_str(" of mailbox ");
    push_decimal(subject, i64::from(key.mailbox));
    subject.push(' ');
    for digit in (0..16).rev() {
        subject.push(char::from(b"0123456789abcdef"[(tag >> (4 * digit)) as usize & 15]));
    }
}

fn push_decimal(text: &mut String, number: i64) {
    if number < 0 {
        text.push('-');
    }
    let mut rest = number.unsigned_abs();
    let mut digits = [0; 20];
    let mut first = digits.len();
    while rest > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits[first..].iter().for_each(|&digit| text.push(char::from(digit)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: MailKey = MailKey { mailbox: 3, message: 14 };
    const PLAIN: RecordForm = RecordForm { record_bytes: 1000, compressible_percent: 0 };

    #[test]
    fn a_record_has_the_size_asked_for_and_is_unlike_its_neighbours() {
        let maker = RecordMaker::new(7, PLAIN);
        let record = maker.make(KEY, RecordVersion::FIRST);
        assert_eq!(FIXED_BYTES + record.subject.len() + record.body.len(), 1000);
        let neighbour = maker.make(MailKey { message: 15, ..KEY }, RecordVersion::FIRST);
        let equal = record.body.iter().zip(&neighbour.body).filter(|(a, b)| a == b).count();
        assert!(equal < 20, "{equal} of 900 bytes agree; chance would be 4");
    }

    #[test]
    fn a_subject_names_its_record_and_memory_used_again_leaves_nothing_behind() {
        let maker = RecordMaker::new(7, RecordForm { compressible_percent: 40, ..PLAIN });
        let mut record = maker.make(KEY, RecordVersion::FIRST);
        for (mailbox, message) in [(0, 0), (9, 10), (i32::MAX, i64::MAX / 20_000_000), (-3, -1), (3, 14)] {
            let key = MailKey { mailbox, message };
            maker.make_in(&mut record, key, RecordVersion::FIRST);
            assert_eq!(record, maker.make(key, RecordVersion::FIRST));
            let tag = maker.stream(key, RecordVersion::FIRST).next_u64();
            assert_eq!(record.subject, format!("{key} {tag:016x}"));
        }
    }

    #[test]
    fn a_record_is_what_databases_on_disk_were_made_with() {
        let record = RecordMaker::new(7, PLAIN).make(KEY, RecordVersion::FIRST);
        let sum = record.body.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        assert_eq!(record.subject, "message 14 of mailbox 3 b6a219ee4b89cfac");
        assert_eq!(sum, 5_661_674_122_702_841_209);
    }

    #[test]
    fn a_compressible_body_is_random_first_and_blank_then_and_still_its_own() {
        for (percent, random) in [(0, 1.0), (50, 0.5), (90, 0.1), (100, 0.0)] {
            let maker = RecordMaker::new(7, RecordForm { compressible_percent: percent, ..PLAIN });
            let record = maker.make(KEY, RecordVersion::FIRST);
            let blank = record.body.iter().rev().take_while(|&&byte| byte == FILLER).count();
            let wanted = (record.body.len() as f64 * random).max(16.0);
            assert!((record.body.len() - blank) as f64 - wanted < 4.0, "{percent} %: {blank} blanks");
            let other = maker.make(MailKey { message: 15, ..KEY }, RecordVersion::FIRST);
            assert_ne!(record.body, other.body, "{percent} %");
            let mixed = MailRecord { body: other.body, ..record };
            assert_eq!(maker.check(KEY, None, &mixed), Err(ContentError::Garbled(KEY)), "{percent} %");
        }
    }

    #[test]
    fn stale_foreign_and_damaged_records_are_told_from_the_right_one() {
        let maker = RecordMaker::new(7, PLAIN);
        let second = RecordVersion::FIRST.next();
        let old = maker.make(KEY, RecordVersion::FIRST);
        let new = maker.make(KEY, second);
        assert_eq!(maker.check(KEY, Some(second), &new), Ok(second));
        assert_eq!(maker.check(KEY, None, &old), Ok(RecordVersion::FIRST));
        assert_eq!(
            maker.check(KEY, Some(second), &old),
            Err(ContentError::WrongVersion { key: KEY, found: 1, expected: 2 })
        );
        let torn = MailRecord { body: old.body.clone(), ..new.clone() };
        assert_eq!(maker.check(KEY, Some(second), &torn), Err(ContentError::Garbled(KEY)));
        let foreign = RecordMaker::new(8, PLAIN).make(KEY, second);
        assert_eq!(maker.check(KEY, Some(second), &foreign), Err(ContentError::Garbled(KEY)));
    }

    #[test]
    fn versions_go_round_without_touching_zero() {
        let last = RecordVersion::from_byte(255).unwrap();
        assert_eq!(last.next(), RecordVersion::FIRST);
        assert_eq!(RecordVersion::from_byte(0), None);
    }
}
