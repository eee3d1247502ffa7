//! The journal over a file that loses power, space and syncs.

use control::{ApplyRecord, DaemonJournal, JournalError};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use world::{
    IoErrorKind, IoResult, Random, StateFile,
    real::HostStateFile,
    sim::{SimStateFile, StateFileFaults},
};

/// The journal's contents, as they should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    pub served: Option<String>,
    pub apply: Option<ApplyRecord>,
}

#[derive(Clone, Debug)]
enum Step {
    Serve(String),
    Begin(ApplyRecord),
    End,
}

impl Step {
    fn draw(random: &mut Random) -> Self {
        // Long texts take several pages, and make the file grow.
        let bytes = if random.percent(20.0) { 30_000 } else { 200 };
        let text = format!("{:0>width$}", random.next_u64(), width = random.below(bytes) as usize);
        match random.below(5) {
            0 => Self::Serve(text),
            1 | 2 => Self::Begin(ApplyRecord {
                text,
                destroy: vec!["mail".into(); random.below(3) as usize],
                ..Default::default()
            }),
            _ => Self::End,
        }
    }

    fn run(&self, journal: &DaemonJournal) -> Result<(), JournalError> {
        match self {
            Self::Serve(text) => journal.set_served_site(text),
            Self::Begin(apply) => journal.begin_apply(apply),
            Self::End => journal.end_apply(),
        }
    }

    fn model(&self, before: &Contents) -> Contents {
        let Contents { served, apply } = before.clone();
        match self {
            Self::Serve(text) => Contents { served: Some(text.clone()), apply },
            Self::Begin(apply) => Contents { served, apply: Some(apply.clone()) },
            Self::End => Contents { served: apply.map(|apply| apply.text).or(served), apply: None },
        }
    }
}

pub fn contents(journal: &DaemonJournal) -> Result<Contents, JournalError> {
    Ok(Contents { served: journal.served_site()?, apply: journal.apply_under_way()? })
}

fn open(file: &SimStateFile) -> Result<DaemonJournal, JournalError> {
    DaemonJournal::open(Arc::new(file.open()))
}

fn apply(text: &str) -> ApplyRecord {
    ApplyRecord { text: text.to_owned(), destroy: vec!["old".to_owned()], ..Default::default() }
}

/// One life of the daemon, until the power fails at operation `cut`, and the next opening. Returns the contents then.
///
/// The error is a violation: something acknowledged is gone, or a change counts in part.
fn life(
    file: &SimStateFile,
    before: Contents,
    cut: u64,
    syncs_lie: bool,
    random: &mut Random,
) -> Result<Contents, String> {
    file.set_faults(StateFileFaults { power_cut: Some(cut), syncs_lie, ..StateFileFaults::default() });
    let (mut acknowledged, mut attempted) = (before.clone(), before);
    // A power cut while it is opened, too, or after the last step.
    if let Ok(journal) = open(file) {
        if contents(&journal).is_ok_and(|found| found != acknowledged) {
            return Err("the contents changed from one opening to the next".to_owned());
        }
        for _ in 0..8 {
            let step = Step::draw(random);
            attempted = step.model(&acknowledged);
            if step.run(&journal).is_err() {
                break;
            }
            acknowledged = attempted.clone();
        }
    }
    file.cut_power();
    let journal = open(file).map_err(|error| format!("cut at {cut}: {error}"))?;
    let found = contents(&journal).map_err(|error| format!("cut at {cut}: {error}"))?;
    if found == acknowledged || found == attempted {
        Ok(found)
    } else {
        Err(format!("cut at {cut}: neither the acknowledged contents nor the next ones"))
    }
}

/// Several lives over one file, cut at random.
fn lives(seed: u64, syncs_lie: bool) -> Result<(), String> {
    let mut random = Random::new(seed, "journal");
    let file = SimStateFile::new("journal", seed);
    let mut found = Contents::default();
    for _ in 0..4 {
        let cut = random.below(60);
        found = life(&file, found, cut, syncs_lie, &mut random)?;
    }
    Ok(())
}

#[test]
fn a_journal_remembers_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let again = || DaemonJournal::open(Arc::new(HostStateFile::open(&path).unwrap())).unwrap();
    let journal = again();
    assert_eq!(contents(&journal).unwrap(), Contents::default());
    journal.end_apply().unwrap();
    journal.set_served_site("first").unwrap();
    journal.begin_apply(&apply("second")).unwrap();
    drop(journal);
    let journal = again();
    let expected = Contents { served: Some("first".into()), apply: Some(apply("second")) };
    assert_eq!(contents(&journal).unwrap(), expected);
    journal.end_apply().unwrap();
    drop(journal);
    assert_eq!(contents(&again()).unwrap(), Contents { served: Some("second".into()), apply: None });
}

#[test]
fn a_power_cut_loses_nothing_acknowledged_and_leaves_no_half_change() {
    for seed in 0..400 {
        lives(seed, false).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

/// One script, cut at each of its writes and syncs, the making of the file among them.
#[test]
fn the_power_may_fail_at_any_write_and_sync() {
    for cut in 0..120 {
        for seed in 0..3 {
            let mut random = Random::new(seed, "journal");
            let file = SimStateFile::new("journal", cut << 8 | seed);
            let found = life(&file, Contents::default(), cut, false, &mut random);
            found.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        }
    }
}

/// A bug that is planted: the checker has to find it.
#[test]
fn a_sync_that_does_nothing_is_noticed() {
    let noticed = (0..100).filter(|&seed| lives(seed, true).is_err()).count();
    assert!(noticed > 50, "{noticed} of 100");
}

#[test]
fn a_full_disk_changes_nothing_and_is_forgotten_once_there_is_room() {
    let mut failed = 0;
    for (number, lasting) in (0..40).flat_map(|number| [(number, false), (number, true)]) {
        let file = SimStateFile::new("state/journal", number);
        let journal = open(&file).unwrap();
        journal.set_served_site("old").unwrap();
        journal.begin_apply(&apply(&"new".repeat(20_000))).unwrap();
        let before = contents(&journal).unwrap();
        let end = if lasting { u64::MAX } else { number + 1 };
        file.set_faults(StateFileFaults { no_space: number..end, ..StateFileFaults::default() });
        match journal.end_apply() {
            // The operation is a sync, or there are fewer.
            Ok(()) => assert!(!lasting || number > 4),
            Err(error) => {
                failed += 1;
                let JournalError::Io(cause) = &error else { panic!("{error}") };
                assert_eq!(cause.kind(), IoErrorKind::NoSpace);
                let line = error.refusal().to_string();
                assert!(line.contains("state/journal") && line.contains("make room"), "{line}");
                file.set_faults(StateFileFaults::default());
                assert_eq!(contents(&journal).unwrap(), before);
                journal.end_apply().unwrap();
            }
        }
        file.set_faults(StateFileFaults::default());
        drop(journal);
        file.cut_power();
        let found = contents(&open(&file).unwrap()).unwrap();
        assert_eq!(found, Contents { served: Some("new".repeat(20_000)), apply: None });
    }
    assert!(failed > 15, "{failed} of 80");
}

#[test]
fn a_new_journal_that_finds_no_space_is_begun_again() {
    for number in 0..12 {
        let file = SimStateFile::new("journal", number);
        file.set_faults(StateFileFaults { no_space: number..u64::MAX, ..StateFileFaults::default() });
        assert!(open(&file).is_err(), "{number}");
        file.set_faults(StateFileFaults::default());
        open(&file).unwrap().set_served_site("site").unwrap();
    }
}

/// A later sync that succeeds says nothing about what the failed one lost.
#[test]
fn nothing_is_acknowledged_after_a_failed_sync_until_the_next_start() {
    for seed in 0..50 {
        let file = SimStateFile::new("journal", seed);
        let journal = open(&file).unwrap();
        journal.set_served_site("old").unwrap();
        file.set_faults(StateFileFaults { failed_syncs: 0..8, ..StateFileFaults::default() });
        let error = journal.set_served_site("new").unwrap_err();
        assert!(matches!(error, JournalError::Unsynced { .. }), "{error}");
        file.set_faults(StateFileFaults::default());
        for result in [journal.set_served_site("newer"), journal.served_site().map(drop)] {
            let line = result.unwrap_err().refusal().to_string();
            assert!(line.contains("may have lost its last change") && line.contains("start again"), "{line}");
        }
        drop(journal);
        file.cut_power();
        let served = open(&file).unwrap().served_site().unwrap().unwrap();
        assert!(["old", "new"].contains(&served.as_str()), "seed {seed}: {served}");
    }
}

/// A file whose syncs read the journal: as another thread does while a slow disk syncs.
#[derive(Debug)]
struct ReadDuringSync {
    file: Arc<dyn StateFile>,
    journal: OnceLock<Weak<DaemonJournal>>,
    read: Mutex<Vec<Option<String>>>,
}

impl StateFile for ReadDuringSync {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn size(&self) -> IoResult<u64> {
        self.file.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> IoResult<()> {
        self.file.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> IoResult<()> {
        self.file.write_at(offset, bytes)
    }

    fn set_size(&self, size: u64) -> IoResult<()> {
        self.file.set_size(size)
    }

    fn sync(&self) -> IoResult<()> {
        if let Some(journal) = self.journal.get().and_then(Weak::upgrade) {
            self.read.lock().unwrap().push(journal.served_site().unwrap());
        }
        self.file.sync()
    }

    fn sync_name(&self) -> IoResult<()> {
        self.file.sync_name()
    }

    fn begin_successor(&self) -> IoResult<Box<dyn StateFile>> {
        self.file.begin_successor()
    }

    fn take_place(&mut self) -> IoResult<()> {
        unreachable!("a journal has no successor")
    }
}

#[test]
fn reads_wait_for_no_commit_and_see_the_one_before() {
    let file = Arc::new(SimStateFile::new("journal", 7).open());
    let file = ReadDuringSync { file, journal: OnceLock::new(), read: Mutex::default() };
    let file = Arc::new(file);
    let journal = Arc::new(DaemonJournal::open(Arc::clone(&file) as Arc<dyn StateFile>).unwrap());
    // Reads do wait for a file that is marked as in use, with the first change, and for one that grows.
    (0..40).for_each(|_| journal.set_served_site("a").unwrap());
    file.journal.set(Arc::downgrade(&journal)).unwrap();
    journal.set_served_site("b").unwrap();
    let read = file.read.lock().unwrap().drain(..).collect::<Vec<_>>();
    assert!(read.len() >= 2 && read.iter().all(|site| site.as_deref() == Some("a")), "{read:?}");
    assert_eq!(journal.served_site().unwrap().as_deref(), Some("b"));
}
