//! The expected content of a mail table: the existing records and their versions, in memory.
//!
//! Picking an existing record must cost no I/O, or the pick would be part of the measurement; and a record
//! read back must be *the* record written last, or storage that silently loses writes would pass. So every
//! record has one byte in memory: 0 if it does not exist, otherwise its version, which counts from 1 to 255
//! and wraps to 1. That is a thousandth of the database: 100 MB of memory for 100 GB, which the estimate
//! includes. Nothing smaller can tell a stale record from the right one. The bytes need not be saved: a scan
//! of the table rebuilds them, and checks every record.
//!
//! New messages are appended to a random mailbox, as mail arrives; deletes leave holes. (In AMI 2008's
//! performance run the database grew by 886 MB while about 890,000 records were inserted and three quarters
//! as many deleted: Jetstress appended, too.) Only a database that has reached its planned maximum is filled
//! from its holes.
//!
//! In a dial-tone database numbers begin higher, so that they are none of the databases whose place it has. Once both are
//! joined, a mailbox has two runs of numbers, with a gap between them in which no message ever was.
//!
//! Mailboxes may be hot and cold: then a share of them, the first ones, gets most of the picks and of the new
//! messages. These have the lowest keys, so hot data is contiguous on disk, as a tiering array prefers.
//!
//! Invariants:
//!
//! 1. A record in the table has a version other than 0 here once its transaction has ended.
//! 2. A record has at most one claim: it is not picked again until the claim is released.
//! 3. `existing` is the number of slots whose version is not 0.

use crate::database::load::mail_record::{MailKey, RecordVersion};
use crate::database::plan::profile::Skew;
use std::collections::BTreeSet;
use world::Random;

/// Maximum number of random picks for an existing, unclaimed record. With one slot in eight taken the chance
/// of needing more is 2·10⁻⁸.
const PICKS_MAX: u32 = 128;

impl Skew {
    /// Draws one of `count` mailboxes.
    fn mailbox(self, count: usize, random: &mut Random) -> usize {
        assert!(count > 0, "there is a mailbox to draw");
        let count = count as u64;
        let hot = (count * self.mailbox_percent).div_ceil(100).clamp(1, count);
        let drawn = if hot == count {
            random.below(count)
        } else if random.below(100) < self.access_percent {
            random.below(hot)
        } else {
            hot + random.below(count - hot)
        };
        drawn as usize
    }
}

/// Numbers without a message that a run takes in; after more, another run begins.
const GAP_MAX: i64 = 1 << 16;

/// Messages of one mailbox whose numbers follow each other.
#[derive(Clone, Debug)]
struct MessageRun {
    first: i64,
    /// Version of each; 0 if it does not exist.
    versions: Vec<u8>,
}

/// The existing records of one database.
#[derive(Debug, Default)]
pub struct KeySpace {
    skew: Skew,
    /// Number of the first message of a mailbox.
    first_message: i64,
    /// The runs of each mailbox, which counts from 0, in their order. Most have one.
    mailboxes: Vec<Vec<MessageRun>>,
    claimed: BTreeSet<MailKey>,
    existing: u64,
}

/// One record, reserved for one transaction.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claim that is not settled blocks its record for ever"]
pub struct RecordClaim {
    pub key: MailKey,
    /// Current version; None for an insert.
    pub version: Option<RecordVersion>,
}

/// The answer to a claim of one record.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyClaim {
    Claimed(RecordClaim),
    /// Another has claimed it.
    Busy,
    /// No message was ever in its mailbox.
    NoMailbox,
}

impl KeySpace {
    /// An empty key space.
    pub fn new(skew: Skew) -> Self {
        Self { skew, ..Self::default() }
    }

    /// That of a dial-tone database: so many mailboxes without a message, whose first one will have this number.
    pub fn of_dial_tone(skew: Skew, mailboxes: usize, first_message: i64) -> Self {
        Self { skew, first_message, mailboxes: vec![Vec::new(); mailboxes], ..Self::default() }
    }

    /// True if a message may have this key.
    pub fn may_hold(&self, key: MailKey) -> bool {
        key.mailbox >= 0 && key.message >= self.first_message
    }

    /// Records that the table holds `key` in `version`; for creation and scans.
    pub fn note(&mut self, key: MailKey, version: RecordVersion) {
        let slot = self.slot(key);
        let was_vacant = std::mem::replace(slot, version.get()) == 0;
        self.existing += u64::from(was_vacant);
    }

    /// Number of existing records.
    pub fn existing(&self) -> u64 {
        self.existing
    }

    /// Number of mailboxes that have ever held a message.
    pub fn mailboxes(&self) -> usize {
        self.mailboxes.len()
    }

    /// Memory of the key space.
    pub fn memory_bytes(&self) -> u64 {
        let of_run = |run: &MessageRun| run.versions.capacity() as u64 + 32;
        self.mailboxes.iter().map(|runs| runs.iter().map(of_run).sum::<u64>() + 24).sum()
    }

    /// Claims a random existing record. Within the hot and the cold mailboxes all records are equally likely
    /// if the mailboxes have equal length. None if few records exist or all are claimed.
    pub fn claim_existing(&mut self, random: &mut Random) -> Option<RecordClaim> {
        let key = self.pick(random, |version| version != 0)?;
        let version = RecordVersion::from_byte(*self.slot(key));
        Some(RecordClaim { key, version })
    }

    /// Claims the record of this key, whether it exists or not.
    pub fn claim_key(&mut self, key: MailKey) -> KeyClaim {
        let is_there = usize::try_from(key.mailbox).is_ok_and(|mailbox| mailbox < self.mailboxes.len());
        if !is_there || !self.may_hold(key) {
            return KeyClaim::NoMailbox;
        }
        if !self.claimed.insert(key) {
            return KeyClaim::Busy;
        }
        let version = RecordVersion::from_byte(*self.slot(key));
        KeyClaim::Claimed(RecordClaim { key, version })
    }

    fn pick(&mut self, random: &mut Random, wanted: impl Fn(u8) -> bool) -> Option<MailKey> {
        if self.mailboxes.is_empty() {
            return None;
        }
        for _ in 0..PICKS_MAX {
            let mailbox = self.skew.mailbox(self.mailboxes.len(), random);
            let runs = &self.mailboxes[mailbox];
            let slots: usize = runs.iter().map(|run| run.versions.len()).sum();
            if slots == 0 {
                continue;
            }
            let (message, version) = drawn(runs, random.below(slots as u64) as usize);
            let key = MailKey { mailbox: mailbox as i32, message };
            if wanted(version) && self.claimed.insert(key) {
                return Some(key);
            }
        }
        None
    }

    /// Claims the next message number of a random mailbox, for an insert.
    pub fn claim_new(&mut self, random: &mut Random) -> RecordClaim {
        if self.mailboxes.is_empty() {
            self.mailboxes.push(Vec::new());
        }
        let mailbox = self.skew.mailbox(self.mailboxes.len(), random);
        let runs = &mut self.mailboxes[mailbox];
        if runs.is_empty() {
            runs.push(MessageRun { first: self.first_message, versions: Vec::new() });
        }
        let last = runs.last_mut().expect("one at least");
        let key = MailKey { mailbox: mailbox as i32, message: last.first + last.versions.len() as i64 };
        last.versions.push(0);
        let fresh = self.claimed.insert(key);
        assert!(fresh, "a new message number is unclaimed");
        RecordClaim { key, version: None }
    }

    /// Claims a deleted message, to insert it again; None if there are few.
    pub fn claim_hole(&mut self, random: &mut Random) -> Option<RecordClaim> {
        self.pick(random, |version| version == 0).map(|key| RecordClaim { key, version: None })
    }

    /// Releases a claim. `version` is the record's version after its transaction; None if it does not exist.
    pub fn settle(&mut self, claim: RecordClaim, version: Option<RecordVersion>) {
        assert!(self.claimed.remove(&claim.key), "only what is claimed is settled");
        let slot = self.slot(claim.key);
        let before = std::mem::replace(slot, version.map_or(0, RecordVersion::get));
        assert_eq!(RecordVersion::from_byte(before), claim.version, "only its claim changes a record");
        self.existing = self.existing + u64::from(version.is_some()) - u64::from(claim.version.is_some());
    }

    fn slot(&mut self, key: MailKey) -> &mut u8 {
        let mailbox = usize::try_from(key.mailbox).expect("mailboxes count from 0");
        assert!(key.message >= self.first_message, "messages count from the first");
        if self.mailboxes.len() <= mailbox {
            self.mailboxes.resize_with(mailbox + 1, Vec::new);
        }
        let runs = &mut self.mailboxes[mailbox];
        let at = match runs.iter().rposition(|run| run.first <= key.message) {
            Some(at) if key.message < runs[at].first + runs[at].versions.len() as i64 + GAP_MAX => at,
            before => {
                let is_near = runs.is_empty() && key.message - self.first_message < GAP_MAX;
                let first = if is_near { self.first_message } else { key.message };
                let at = before.map_or(0, |before| before + 1);
                runs.insert(at, MessageRun { first, versions: Vec::new() });
                at
            }
        };
        let run = &mut runs[at];
        let slot = usize::try_from(key.message - run.first).expect("it is in this run");
        if run.versions.len() <= slot {
            run.versions.resize(slot + 1, 0);
        }
        &mut run.versions[slot]
    }
}

/// Number and version of the message at this place among all of a mailbox.
fn drawn(runs: &[MessageRun], mut place: usize) -> (i64, u8) {
    for run in runs {
        match run.versions.get(place) {
            Some(version) => return (run.first + place as i64, *version),
            None => place -= run.versions.len(),
        }
    }
    unreachable!("a place is drawn among those that there are")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn key(mailbox: i32, message: i64) -> MailKey {
        MailKey { mailbox, message }
    }

    #[test]
    fn picks_are_uniform_over_what_exists_and_pass_over_holes() {
        let mut space = KeySpace::default();
        for message in (0..100).filter(|message| message % 5 != 0) {
            space.note(key(message as i32 % 2, message / 2), RecordVersion::FIRST);
        }
        let mut random = Random::new(1, "test");
        let mut hits: BTreeMap<MailKey, u32> = BTreeMap::new();
        for _ in 0..8000 {
            let claim = space.claim_existing(&mut random).unwrap();
            *hits.entry(claim.key).or_default() += 1;
            let version = claim.version;
            space.settle(claim, version);
        }
        assert_eq!(hits.len(), 80, "every record is picked, no hole is");
        assert!(hits.values().all(|&count| (50..=160).contains(&count)), "{hits:?}");
    }

    #[test]
    fn a_fifth_of_the_mailboxes_gets_four_fifths_of_picks_and_inserts() {
        let mut space = KeySpace::new(Skew { mailbox_percent: 20, access_percent: 80 });
        for mailbox in 0..50 {
            for message in 0..20 {
                space.note(key(mailbox, message), RecordVersion::FIRST);
            }
        }
        let mut random = Random::new(1, "test");
        let mut of_mailbox = [0_u32; 50];
        for _ in 0..50_000 {
            let claim = space.claim_existing(&mut random).unwrap();
            of_mailbox[claim.key.mailbox as usize] += 1;
            let version = claim.version;
            space.settle(claim, version);
        }
        // 4000 for each hot one, 250 for each cold one; 6 standard deviations of chance.
        assert!(of_mailbox[..10].iter().all(|count| (3_620..4_380).contains(count)), "{of_mailbox:?}");
        assert!(of_mailbox[10..].iter().all(|count| (155..345).contains(count)), "{of_mailbox:?}");
        let mut inserts_of_hot = 0;
        for _ in 0..5_000 {
            let claim = space.claim_new(&mut random);
            inserts_of_hot += u32::from(claim.key.mailbox < 10);
            space.settle(claim, None);
        }
        assert!((3_830..4_170).contains(&inserts_of_hot), "{inserts_of_hot}");
    }

    #[test]
    fn a_skewed_key_space_of_one_mailbox_works_and_an_even_one_draws_as_it_always_did() {
        let mut one = KeySpace::new(Skew { mailbox_percent: 1, access_percent: 99 });
        one.note(key(0, 0), RecordVersion::FIRST);
        let claim = one.claim_existing(&mut Random::new(1, "test")).unwrap();
        one.settle(claim, None);
        let (mut even, mut plain) = (Random::new(1, "test"), Random::new(1, "test"));
        let drawn: Vec<_> = (0..100).map(|_| Skew::default().mailbox(7, &mut even)).collect();
        assert_eq!(drawn, (0..100).map(|_| plain.below(7) as usize).collect::<Vec<_>>());
    }

    #[test]
    fn a_claimed_record_is_not_picked_again_until_settled() {
        let mut space = KeySpace::default();
        space.note(key(0, 0), RecordVersion::FIRST);
        let mut random = Random::new(1, "test");
        let claim = space.claim_existing(&mut random).unwrap();
        assert_eq!(space.claim_existing(&mut random), None);
        space.settle(claim, None);
        assert_eq!(space.existing(), 0);
        assert_eq!(space.claim_existing(&mut random), None, "it was deleted");
    }

    #[test]
    fn inserts_append_and_become_pickable_only_when_settled() {
        let mut space = KeySpace::default();
        let mut random = Random::new(1, "test");
        let first = space.claim_new(&mut random);
        let second = space.claim_new(&mut random);
        assert_eq!((first.key, second.key), (key(0, 0), key(0, 1)));
        assert_eq!(space.claim_existing(&mut random), None);
        space.settle(first, None);
        space.settle(second, Some(RecordVersion::FIRST));
        let claim = space.claim_existing(&mut random).unwrap();
        assert_eq!(claim.key, key(0, 1), "the insert that was rolled back left a hole");
        space.settle(claim, Some(RecordVersion::FIRST.next()));
        assert_eq!(space.existing(), 1);
    }

    #[test]
    fn a_dial_tone_begins_empty_and_with_its_own_numbers() {
        let mut space = KeySpace::of_dial_tone(Skew::default(), 3, 28_000_000);
        let mut random = Random::new(1, "test");
        assert_eq!((space.claim_existing(&mut random), space.mailboxes()), (None, 3));
        for _ in 0..50 {
            let claim = space.claim_new(&mut random);
            assert!(space.may_hold(claim.key), "{:?}", claim.key);
            space.settle(claim, Some(RecordVersion::FIRST));
        }
        let claim = space.claim_existing(&mut random).unwrap();
        assert!((28_000_000..28_000_050).contains(&claim.key.message), "{:?}", claim.key);
        space.settle(claim, None);
        assert_eq!((space.existing(), space.may_hold(key(0, 27_999_999))), (49, false));
    }

    #[test]
    fn one_key_is_claimed_also_between_two_runs_and_if_its_record_is_gone() {
        let mut space = KeySpace::default();
        for message in [0, 1, 28_000_000] {
            space.note(key(1, message), RecordVersion::FIRST);
        }
        for message in [5, 1 << 20, 28_000_000, 28_000_007] {
            let KeyClaim::Claimed(claim) = space.claim_key(key(1, message)) else { panic!("{message}") };
            assert_eq!(claim.version.is_some(), message == 28_000_000);
            assert_eq!(space.claim_key(key(1, message)), KeyClaim::Busy);
            space.settle(claim, Some(RecordVersion::FIRST.next()));
            let KeyClaim::Claimed(claim) = space.claim_key(key(1, message)) else { panic!("{message}") };
            assert_eq!(claim.version, Some(RecordVersion::FIRST.next()));
            space.settle(claim, None);
        }
        assert_eq!(space.existing(), 2);
        assert_eq!(space.claim_key(key(2, 0)), KeyClaim::NoMailbox);
        assert_eq!(space.claim_key(key(-1, 0)), KeyClaim::NoMailbox);
    }

    #[test]
    fn two_runs_of_a_mailbox_take_the_room_of_their_messages_alone() {
        let mut space = KeySpace::default();
        for message in [0, 1, 2, 28_000_000, 28_000_001] {
            space.note(key(1, message), RecordVersion::FIRST);
        }
        assert!(space.memory_bytes() < 1_000, "{} bytes", space.memory_bytes());
        let mut random = Random::new(1, "test");
        let mut hits: BTreeMap<MailKey, u32> = BTreeMap::new();
        for _ in 0..5_000 {
            let claim = space.claim_existing(&mut random).unwrap();
            *hits.entry(claim.key).or_default() += 1;
            let version = claim.version;
            space.settle(claim, version);
        }
        assert_eq!(hits.len(), 5);
        assert!(hits.values().all(|count| (800..1_200).contains(count)), "{hits:?}");
        // Mailbox 0 was skipped, and has none: new mail goes to the end of either.
        for _ in 0..20 {
            let claim = space.claim_new(&mut random);
            assert!(claim.key.message >= 28_000_002 || claim.key.mailbox == 0, "{:?}", claim.key);
            space.settle(claim, Some(RecordVersion::FIRST));
        }
        assert_eq!(space.existing(), 25);
    }

    #[test]
    fn a_full_database_is_filled_from_its_holes() {
        let mut space = KeySpace::default();
        let mut random = Random::new(1, "test");
        for message in 0..10 {
            space.note(key(0, message), RecordVersion::FIRST);
        }
        assert_eq!(space.claim_hole(&mut random), None);
        let deleted = space.claim_existing(&mut random).unwrap();
        let gone = deleted.key;
        space.settle(deleted, None);
        let hole = space.claim_hole(&mut random).unwrap();
        assert_eq!((hole.key, hole.version), (gone, None));
        space.settle(hole, Some(RecordVersion::FIRST));
        assert_eq!(space.existing(), 10);
    }

    #[test]
    #[should_panic(expected = "only what is claimed is settled")]
    fn settling_twice_is_a_bug() {
        let mut space = KeySpace::default();
        space.note(key(0, 0), RecordVersion::FIRST);
        let claim = space.claim_existing(&mut Random::new(1, "test")).unwrap();
        let again = RecordClaim { key: claim.key, version: claim.version };
        space.settle(claim, Some(RecordVersion::FIRST));
        space.settle(again, Some(RecordVersion::FIRST));
    }
}
