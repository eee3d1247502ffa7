//! A state file that forgets what was not synced when the power fails.
//!
//! Invariants:
//!
//! 1. The stable bytes are those of the last sync. The cached bytes are the stable ones with all unsynced changes, except
//!    after a sync that failed: what it lost is cached, and is not written again.
//! 2. A power cut keeps any of the unsynced changes: a new size whole or not at all, a write in any of its sectors. Bytes
//!    beyond a size that was lost are lost with it.
//! 3. A handle from before a power cut reads and changes nothing.
//! 4. A successor that has taken the place has it after a power cut if the name was synced; else it or the file before has.
//!
//! A process that is killed loses nothing: the cache is the kernel's.

use crate::{IoError, IoErrorKind, IoResult, Random, StateFile};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

/// A write may be torn between two of these.
const SECTOR_BYTES: u64 = 512;

/// Faults of a state file, by the number of the change or sync since they were set, from 0. None by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateFileFaults {
    /// The power fails at this change or sync: it may count or not, all later ones do not.
    pub power_cut: Option<u64>,
    /// Writes and new sizes that find no space.
    pub no_space: Range<u64>,
    /// Syncs that fail. Part of the changes before them is lost at the next power cut, whatever is synced later.
    pub failed_syncs: Range<u64>,
    /// Syncs succeed and make nothing stable: no correct program survives that.
    pub syncs_lie: bool,
}

/// A file on a simulated disk. It outlives handles and power cuts; clones are the same file.
#[derive(Clone, Debug)]
pub struct SimStateFile {
    name: String,
    state: Arc<Mutex<FileState>>,
}

/// A file opened by a process.
#[derive(Debug)]
pub struct SimStateHandle {
    file: SimStateFile,
    name: String,
    /// The one of the files that it is.
    id: u64,
    is_successor: bool,
    power_cycle: u64,
}

#[derive(Debug)]
struct FileState {
    random: Random,
    /// The file of the name, its successors, and files that had the name before.
    files: BTreeMap<u64, FileContents>,
    named: u64,
    /// The file that has the name after a power cut.
    stably_named: u64,
    faults: StateFileFaults,
    /// Changes and syncs since the faults were set.
    operations: u64,
    /// Power cuts so far.
    power_cycle: u64,
    has_power: bool,
}

#[derive(Debug, Default)]
struct FileContents {
    stable: Vec<u8>,
    cached: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Size(u64),
}

impl SimStateFile {
    /// An empty file. One seed loses the same changes each time.
    pub fn new(name: &str, seed: u64) -> Self {
        Self::with_contents(name, seed, Vec::new())
    }

    /// A file whose contents are stable.
    pub fn with_contents(name: &str, seed: u64, contents: Vec<u8>) -> Self {
        let state = FileState {
            random: Random::new(seed, "state file"),
            files: BTreeMap::from([(0, FileContents::stable(contents))]),
            named: 0,
            stably_named: 0,
            faults: StateFileFaults::default(),
            operations: 0,
            power_cycle: 0,
            has_power: true,
        };
        Self { name: name.to_owned(), state: Arc::new(Mutex::new(state)) }
    }

    pub fn open(&self) -> SimStateHandle {
        let (id, power_cycle) = {
            let state = self.lock();
            (state.named, state.power_cycle)
        };
        SimStateHandle { file: self.clone(), name: self.name.clone(), id, is_successor: false, power_cycle }
    }

    /// The contents as processes read them.
    pub fn contents(&self) -> Vec<u8> {
        let state = self.lock();
        state.files[&state.named].cached.clone()
    }

    /// Replaces the faults and counts operations from 0.
    pub fn set_faults(&self, faults: StateFileFaults) {
        let mut state = self.lock();
        state.faults = faults;
        state.operations = 0;
    }

    /// Changes and syncs since the faults were set.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Cuts the power, if that has not happened yet, and turns it on again, without faults.
    pub fn cut_power(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        // Some power cuts lose all, some nothing, most a part.
        let kept_percent = [0.0, 20.0, 50.0, 80.0, 100.0][state.random.below(5) as usize];
        if state.named != state.stably_named && state.random.percent(kept_percent) {
            state.stably_named = state.named;
        }
        let mut kept = state.files.remove(&state.stably_named).expect("it has the name");
        kept.lose(kept_percent, &mut state.random);
        (state.files, state.named) = (BTreeMap::from([(state.stably_named, kept)]), state.stably_named);
        state.faults = StateFileFaults::default();
        state.power_cycle += 1;
        state.has_power = true;
    }

    fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().expect("nothing panics with the lock held")
    }

    fn fail(&self, kind: IoErrorKind, text: &str) -> IoError {
        IoError::new(kind, format!("{}: {text}", self.name))
    }
}

impl FileContents {
    fn stable(contents: Vec<u8>) -> Self {
        Self { stable: contents.clone(), cached: contents, unsynced: Vec::new() }
    }

    /// A power cut.
    fn lose(&mut self, kept_percent: f64, random: &mut Random) {
        for change in std::mem::take(&mut self.unsynced) {
            change.survive(&mut self.stable, kept_percent, random);
        }
        self.cached.clone_from(&self.stable);
    }
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Self::Size(size) => contents.resize(*size as usize, 0),
            Self::Write { offset, bytes } => {
                contents[*offset as usize..][..bytes.len()].copy_from_slice(bytes)
            }
        }
    }

    /// Applies as much of a change as survives.
    fn survive(self, stable: &mut Vec<u8>, kept_percent: f64, random: &mut Random) {
        match self {
            Self::Size(_) if random.percent(kept_percent) => self.apply(stable),
            Self::Size(_) => {}
            Self::Write { offset, bytes } => {
                let is_torn = random.percent(30.0);
                let is_kept = random.percent(kept_percent);
                let end = (offset + bytes.len() as u64).min(stable.len() as u64);
                let mut at = offset;
                while at < end {
                    let sector_end = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
                    let survives = if is_torn { random.percent(50.0) } else { is_kept };
                    if survives {
                        let kept = &bytes[(at - offset) as usize..(sector_end - offset) as usize];
                        stable[at as usize..sector_end as usize].copy_from_slice(kept);
                    }
                    at = sector_end;
                }
            }
        }
    }
}

impl SimStateHandle {
    /// The state of a file that still has power.
    fn running(&self) -> IoResult<MutexGuard<'_, FileState>> {
        let state = self.file.lock();
        if state.has_power && state.power_cycle == self.power_cycle {
            Ok(state)
        } else {
            Err(self.no_power())
        }
    }

    fn no_power(&self) -> IoError {
        self.file.fail(IoErrorKind::Disconnected, "the power is cut")
    }

    /// Counts a change or sync. Returns its number, and whether the power fails at it.
    fn count(state: &mut FileState) -> (u64, bool) {
        let number = state.operations;
        state.operations += 1;
        let is_last = state.faults.power_cut == Some(number);
        state.has_power = !is_last;
        (number, is_last)
    }

    fn change(&self, changes: Vec<Change>) -> IoResult<()> {
        let mut state = self.running()?;
        let (number, is_last) = Self::count(&mut state);
        if state.faults.no_space.contains(&number) {
            return Err(self.file.fail(IoErrorKind::NoSpace, "no space left on device"));
        }
        let contents = state.files.get_mut(&self.id).expect("an open file");
        for change in changes {
            change.apply(&mut contents.cached);
            contents.unsynced.push(change);
        }
        if is_last { Err(self.no_power()) } else { Ok(()) }
    }
}

impl StateFile for SimStateHandle {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> IoResult<u64> {
        Ok(self.running()?.files[&self.id].cached.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> IoResult<()> {
        let state = self.running()?;
        let cached = &state.files[&self.id].cached;
        let found = cached.get(offset as usize..).and_then(|rest| rest.get(..into.len()));
        let found = found.ok_or_else(|| self.file.fail(IoErrorKind::OutOfRange, "reading beyond the end"))?;
        into.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> IoResult<()> {
        let end = offset + bytes.len() as u64;
        let grows = end > self.size()?;
        let write = Change::Write { offset, bytes: bytes.to_vec() };
        self.change(grows.then_some(Change::Size(end)).into_iter().chain([write]).collect())
    }

    fn set_size(&self, size: u64) -> IoResult<()> {
        self.change(vec![Change::Size(size)])
    }

    fn sync(&self) -> IoResult<()> {
        let mut state = self.running()?;
        let (number, is_last) = Self::count(&mut state);
        if is_last {
            return Err(self.no_power());
        }
        let FileState { random, files, faults, .. } = &mut *state;
        let contents = files.get_mut(&self.id).expect("an open file");
        if faults.failed_syncs.contains(&number) {
            for change in std::mem::take(&mut contents.unsynced) {
                // Sizes are the filesystem's own data, and safe in its journal.
                let kept_percent = if matches!(change, Change::Size(_)) { 100.0 } else { 50.0 };
                change.survive(&mut contents.stable, kept_percent, random);
            }
            return Err(self.file.fail(IoErrorKind::Medium, "input/output error"));
        }
        if !faults.syncs_lie {
            let unsynced = std::mem::take(&mut contents.unsynced);
            unsynced.iter().for_each(|change| change.apply(&mut contents.stable));
        }
        Ok(())
    }

    fn sync_name(&self) -> IoResult<()> {
        let mut state = self.running()?;
        let (number, is_last) = Self::count(&mut state);
        if is_last {
            return Err(self.no_power());
        }
        if state.faults.failed_syncs.contains(&number) {
            return Err(self.file.fail(IoErrorKind::Medium, "input/output error"));
        }
        if !state.faults.syncs_lie {
            state.stably_named = state.named;
        }
        Ok(())
    }

    fn begin_successor(&self) -> IoResult<Box<dyn StateFile>> {
        let mut state = self.running()?;
        let id = state.files.last_key_value().map_or(0, |(last, _)| last + 1);
        state.files.insert(id, FileContents::default());
        let (file, name) = (self.file.clone(), format!("{}.new", self.name));
        Ok(Box::new(SimStateHandle { file, name, id, is_successor: true, power_cycle: self.power_cycle }))
    }

    fn take_place(&mut self) -> IoResult<()> {
        assert!(std::mem::take(&mut self.is_successor), "a successor takes its place once");
        let mut state = self.running()?;
        let (number, is_last) = Self::count(&mut state);
        if state.faults.no_space.contains(&number) {
            return Err(self.file.fail(IoErrorKind::NoSpace, "no space left on device"));
        }
        state.named = self.id;
        drop(state);
        self.name.clone_from(&self.file.name);
        if is_last { Err(self.no_power()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: usize = SECTOR_BYTES as usize;

    /// A synced file of `1`s, with `2`s written and `3`s appended since.
    fn changed_file(seed: u64, faults: StateFileFaults) -> SimStateFile {
        let file = SimStateFile::new("state", seed);
        let handle = file.open();
        handle.write_at(0, &[1; 4 * SECTOR]).unwrap();
        handle.sync().unwrap();
        file.set_faults(faults);
        let _ = handle.write_at(SECTOR_BYTES / 2, &[2; 2 * SECTOR]);
        let _ = handle.write_at(4 * SECTOR_BYTES, &[3; SECTOR]);
        let _ = handle.sync();
        file
    }

    #[test]
    fn synced_changes_survive_and_a_cut_handle_is_dead() {
        let file = changed_file(1, StateFileFaults::default());
        let before = file.contents();
        let handle = file.open();
        file.cut_power();
        assert!(file.contents() == before);
        assert_eq!(handle.write_at(0, &[9]).unwrap_err().kind(), IoErrorKind::Disconnected);
        assert_eq!(handle.size().unwrap_err().kind(), IoErrorKind::Disconnected);
        assert_eq!(file.open().size().unwrap(), 5 * SECTOR_BYTES);
    }

    #[test]
    fn a_power_cut_keeps_any_of_the_unsynced_sectors_and_of_the_sizes() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..2000 {
            let file =
                changed_file(seed, StateFileFaults { power_cut: Some(2), ..StateFileFaults::default() });
            file.cut_power();
            let bytes = file.contents();
            // The write covers the second half of a sector, a whole one, and the first half of a third.
            let first = |at: usize| bytes.get(at).copied();
            seen.insert([0, SECTOR - 1, SECTOR, 2 * SECTOR, 3 * SECTOR, 4 * SECTOR].map(first));
        }
        let mut possible = 0;
        for written in 0..8 {
            let byte = |bit: i32| Some(if written & bit == 0 { 1 } else { 2 });
            for appended in [None, Some(0), Some(3)] {
                let found = [Some(1), byte(1), byte(2), byte(4), Some(1), appended];
                possible += usize::from(seen.remove(&found));
            }
        }
        assert!(seen.is_empty(), "{seen:?}");
        assert_eq!(possible, 24, "each is drawn");
    }

    #[test]
    fn the_power_fails_at_the_chosen_operation() {
        for (cut, changed) in [(0, 1), (1, 2)] {
            let faults = StateFileFaults { power_cut: Some(cut), ..StateFileFaults::default() };
            let file = changed_file(7, faults);
            assert_eq!(file.operations(), changed);
            assert_eq!(file.open().size().unwrap_err().kind(), IoErrorKind::Disconnected);
            file.cut_power();
            file.open().size().unwrap();
        }
    }

    #[test]
    fn a_successor_has_the_place_for_certain_once_its_name_is_synced() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let file = changed_file(seed, StateFileFaults::default());
            let before = file.open();
            let mut successor = before.begin_successor().unwrap();
            successor.write_at(0, &[7; SECTOR]).unwrap();
            let is_synced = seed % 2 == 0;
            if is_synced {
                successor.sync().unwrap();
            }
            assert_eq!(file.contents().len(), 5 * SECTOR, "it has not taken the place");
            successor.take_place().unwrap();
            assert_eq!((file.contents(), successor.name()), (vec![7; SECTOR], "state"));
            before.write_at(0, &[9]).unwrap();
            assert_eq!(file.open().size().unwrap(), SECTOR as u64, "the one before is another file");
            let is_name_synced = seed % 4 < 2;
            if is_name_synced {
                successor.sync_name().unwrap();
            }
            file.cut_power();
            seen.insert((is_synced, is_name_synced, file.contents().len() / SECTOR));
        }
        let lost =
            [(false, false, 0), (false, false, 1), (false, false, 5), (false, true, 0), (false, true, 1)];
        let kept = [(true, false, 1), (true, false, 5), (true, true, 1)];
        assert_eq!(seen, lost.into_iter().chain(kept).collect());
    }

    #[test]
    fn without_space_nothing_is_written_and_a_failed_sync_forgets() {
        let full = changed_file(1, StateFileFaults { no_space: 0..2, ..StateFileFaults::default() });
        assert!(full.contents() == [1; 4 * SECTOR]);
        let handle = full.open();
        full.set_faults(StateFileFaults { no_space: 0..1, ..StateFileFaults::default() });
        assert_eq!(handle.set_size(1 << 20).unwrap_err().kind(), IoErrorKind::NoSpace);
        let forgot = |seed| {
            let file =
                changed_file(seed, StateFileFaults { failed_syncs: 2..3, ..StateFileFaults::default() });
            let before = file.contents();
            file.open().sync().unwrap();
            file.cut_power();
            file.contents() != before
        };
        assert!((0..20).any(forgot));
        let lied = |seed| {
            let file = changed_file(seed, StateFileFaults { syncs_lie: true, ..StateFileFaults::default() });
            file.cut_power();
            file.contents().len() == 4 * SECTOR
        };
        assert!((0..20).any(lied));
    }
}
