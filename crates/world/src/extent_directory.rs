//! A [`Directory`] on any one block device: the device carved into named files.
//!
//! A raw drive has no filesystem, and should not get one for a measurement's sake. All that is
//! needed is a table of a few names. The device begins with two copies of that table; the rest is
//! given to files in runs of 64 KiB units.
//!
//! ```text
//! 0            1 MiB        2 MiB
//! | table copy | table copy | data: extents of files and free space …             | end |
//!   even sequence  odd sequence
//! ```
//!
//! Every create, rename, remove and resize is one stable write of the whole table to the copy that
//! is *not* the current state; the copy with the higher sequence number wins. A write torn by power
//! loss leaves an invalid checksum there and the previous state in the other copy. The bytes of a
//! table are described in `table.rs` and in `docs/formats/extent-directory.md`.
//!
//! Invariants:
//!
//! 1. What is in `State` is what the newest completed table write holds.
//! 2. No two files, named or held open after removal, share a byte (asserted whenever space is
//!    given out).
//! 3. Bytes are given to another file only when no handle is left that could reach them and the
//!    end of every operation on them was seen.
//! 4. Added bytes are zero on stable storage before a table names them.
//! 5. At most one table write is under way, also if the future that started it was dropped.

mod crc32c;
mod extent_file;
mod space;
mod table;

pub use table::{EXTENTS_MAX, FILES_MAX};

use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, IoError, IoErrorKind,
    IoResult, LocalFuture, Stability, plain_name::check_plain_name,
};
use extent_file::{ExtentFile, FileState};
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::Arc,
};
use table::{COPY_SPACE, DATA_START, Extent, Table, TableFile, UNIT};

/// What a device holds, as far as this format can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A directory of this format.
    Ours,
    /// Nothing: its first and last MiB are zero.
    Blank,
    /// Something else.
    Foreign,
}

/// A carved device. Cheap to clone; clones share one state.
#[derive(Clone)]
pub struct ExtentDirectory(Rc<Shared>);

impl ExtentDirectory {
    /// Makes an empty directory of `device`, whatever it held.
    pub async fn format(device: Rc<dyn BlockDevice>) -> IoResult<Self> {
        let device_size = device.geometry().size.0 / UNIT * UNIT;
        if device_size < DATA_START + UNIT {
            let context = format!("formatting a device of {}: too small", device.geometry().size);
            return Err(IoError::new(IoErrorKind::NoSpace, context));
        }
        // Neither copy of an older directory may outlive the new one's first.
        let nothing = Arc::new(Buffer::zeroed(COPY_SPACE as usize));
        device.write(ByteOffset(0), vec![Arc::clone(&nothing), nothing], Stability::Stable).await?;
        let table = Table { sequence: 0, device_size, files: BTreeMap::new() };
        write_table(&*device, &table).await?;
        Ok(Self::with(device, table))
    }

    /// Opens the directory on `device`; `Damaged` if neither copy of its table is valid.
    pub async fn open(device: Rc<dyn BlockDevice>) -> IoResult<Self> {
        match read_newest(&*device).await? {
            Some(table) => Ok(Self::with(device, table)),
            None => {
                let context = "opening a carved device: neither copy of its table of files is valid";
                Err(IoError::new(IoErrorKind::Damaged, context))
            }
        }
    }

    /// Says what is on `device` without changing it.
    pub async fn probe(device: &dyn BlockDevice) -> IoResult<Probe> {
        if read_newest(device).await?.is_some() {
            return Ok(Probe::Ours);
        }
        let size = device.geometry().size.0;
        let length = size.min(COPY_SPACE);
        for at in [0, size - length] {
            if length > 0 && !read_run(device, at, length).await?.iter().all(|&byte| byte == 0) {
                return Ok(Probe::Foreign);
            }
        }
        Ok(Probe::Blank)
    }

    /// The same directory, called `label` in messages.
    pub fn named(self, label: impl Into<String>) -> Self {
        *self.0.label.borrow_mut() = label.into();
        self
    }

    fn with(device: Rc<dyn BlockDevice>, table: Table) -> Self {
        let files =
            table.files.into_iter().map(|(name, file)| (name, FileState::new(file.size, file.extents)));
        let state = State {
            sequence: table.sequence,
            device_size: table.device_size,
            files: files.collect(),
            unnamed: Vec::new(),
            lost: Vec::new(),
        };
        let label = RefCell::new("a carved device".to_owned());
        let writer = tokio::sync::Mutex::new(Writer { under_way: None, unsettled: false });
        Self(Rc::new(Shared { device, label, state: RefCell::new(state), writer }))
    }
}

struct State {
    sequence: u64,
    device_size: u64,
    files: BTreeMap<String, Rc<FileState>>,
    /// Files that hold space without a name: removed but open, or not yet named.
    unnamed: Vec<Rc<FileState>>,
    /// Space cut off from files while operations were under way on it: free after the next open.
    lost: Vec<Extent>,
}

struct Writer {
    /// A table write whose end was not seen yet.
    under_way: Option<LocalFuture<IoResult<()>>>,
    /// The last table write failed or was abandoned: the device may hold a newer state than ours.
    unsettled: bool,
}

struct Shared {
    device: Rc<dyn BlockDevice>,
    label: RefCell<String>,
    state: RefCell<State>,
    writer: tokio::sync::Mutex<Writer>,
}

impl State {
    fn table(&self) -> Table {
        let files = self.files.iter().map(|(name, file)| {
            let entry = TableFile { size: file.size.get(), extents: file.extents.borrow().clone() };
            (name.clone(), entry)
        });
        Table { sequence: self.sequence, device_size: self.device_size, files: files.collect() }
    }

    fn gaps(&mut self) -> Vec<Extent> {
        self.unnamed.retain(|file| Rc::strong_count(file) > 1 || file.unseen.get() > 0);
        let files = self.files.values().chain(&self.unnamed);
        let held = files.flat_map(|file| file.extents.borrow().clone());
        space::gaps(held.chain(self.lost.iter().copied()).collect::<Vec<_>>(), self.device_size)
    }

    fn name_of(&self, file: &Rc<FileState>) -> Option<&String> {
        self.files.iter().find(|(_, known)| Rc::ptr_eq(known, file)).map(|(name, _)| name)
    }

    fn forget_unnamed(&mut self, file: &Rc<FileState>) {
        self.unnamed.retain(|unnamed| !Rc::ptr_eq(unnamed, file));
    }
}

impl Shared {
    fn sector(&self) -> u32 {
        self.device.geometry().sector
    }

    fn label_of(&self, file: &Rc<FileState>) -> String {
        let state = self.state.borrow();
        let name = state.name_of(file).map_or("a removed file", |name| name);
        format!("{name} on {}", self.label.borrow())
    }

    fn fail(&self, kind: IoErrorKind, doing: &str, why: &str) -> IoError {
        IoError::new(kind, format!("{doing} on {}: {why}", self.label.borrow()))
    }

    /// One step from a state to the next: `plan` changes the table, the table is written, `apply`
    /// changes what is in memory likewise.
    async fn step(
        &self,
        plan: impl FnOnce(&State, &mut Table) -> IoResult<()>,
        apply: impl FnOnce(&mut State),
    ) -> IoResult<()> {
        let mut writer = self.writer.lock().await;
        if let Some(abandoned) = &mut writer.under_way {
            // Whatever became of it, what is written now replaces it.
            let _ = abandoned.await;
            writer.under_way = None;
        }
        let table = {
            let state = self.state.borrow();
            let before = state.table();
            let mut table = before.clone();
            plan(&state, &mut table)?;
            if table == before && !writer.unsettled {
                drop(state);
                apply(&mut self.state.borrow_mut());
                return Ok(());
            }
            table.sequence += 1;
            table
        };
        let sequence = table.sequence;
        writer.unsettled = true;
        writer.under_way = Some(write_table(&*self.device, &table));
        let written = writer.under_way.as_mut().expect("set on the line above").await;
        writer.under_way = None;
        written?;
        writer.unsettled = false;
        let mut state = self.state.borrow_mut();
        state.sequence = sequence;
        apply(&mut state);
        Ok(())
    }

    /// Space for `need` more bytes, held by a file without a name; `after` is where the file it is
    /// for ends now.
    fn reserve(&self, doing: &str, after: Option<u64>, need: u64) -> IoResult<Rc<FileState>> {
        let mut state = self.state.borrow_mut();
        let gaps = state.gaps();
        let free: u64 = gaps.iter().map(|gap| gap.length).sum();
        let Some(extents) = space::pick(gaps, after, need) else {
            let why = format!("{} are needed and {} are free", ByteCount(need), ByteCount(free));
            return Err(self.fail(IoErrorKind::NoSpace, doing, &why));
        };
        let reserved = FileState::new(0, extents);
        state.unnamed.push(Rc::clone(&reserved));
        Ok(reserved)
    }

    fn whole_units(&self, doing: &str, size: u64) -> IoResult<u64> {
        if !size.is_multiple_of(u64::from(self.sector())) {
            return Err(self.fail(
                IoErrorKind::Unaligned,
                doing,
                &format!("{size} bytes are not whole sectors"),
            ));
        }
        let too_large = || self.fail(IoErrorKind::NoSpace, doing, &format!("{size} bytes are absurd"));
        size.checked_next_multiple_of(UNIT).ok_or_else(too_large)
    }

    fn check_pieces(&self, doing: &str, extents: &[Extent]) -> IoResult<()> {
        match extents.len() <= EXTENTS_MAX {
            true => Ok(()),
            false => {
                let why = format!("what is free lies in more than {EXTENTS_MAX} pieces");
                Err(self.fail(IoErrorKind::NoSpace, doing, &why))
            }
        }
    }

    /// Makes `pieces`, held by `holder`, zero on stable storage, a few MiB at a time.
    async fn write_zeroes(&self, holder: &Rc<FileState>, pieces: Vec<Extent>) -> IoResult<()> {
        const RUN: u64 = 1 << 20;
        const RUNS_IN_FLIGHT: usize = 4;
        let zeroes = Arc::new(Buffer::zeroed(RUN as usize));
        let mut runs = pieces.into_iter().flat_map(|piece| {
            (0..piece.length.div_ceil(RUN)).map(move |index| {
                let start = piece.start + index * RUN;
                Extent { start, length: RUN.min(piece.end() - start) }
            })
        });
        let mut in_flight = VecDeque::new();
        let mut start = |run: Extent| {
            let from = match run.length {
                RUN => Arc::clone(&zeroes),
                length => Arc::new(Buffer::zeroed(length as usize)),
            };
            holder.begin();
            let write = self.device.write(ByteOffset(run.start), vec![from], Stability::Volatile);
            Rc::clone(holder).see_out(vec![write])
        };
        in_flight.extend(runs.by_ref().take(RUNS_IN_FLIGHT).map(&mut start));
        let mut failed = None;
        while let Some(oldest) = in_flight.pop_front() {
            match oldest.await {
                Ok(_) if failed.is_none() => in_flight.extend(runs.next().map(&mut start)),
                Ok(_) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => self.device.flush().await,
        }
    }

    async fn grow(
        &self,
        file: &Rc<FileState>,
        size: u64,
        rest_zeroes: &mut Option<LocalFuture<IoResult<()>>>,
    ) -> IoResult<()> {
        let doing = format!("growing a file to {}", ByteCount(size));
        let held = self.whole_units(&doing, size)?;
        let (mut extents, before) = (file.extents.borrow().clone(), file.size.get());
        let held_before: u64 = extents.iter().map(|extent| extent.length).sum();
        let end = extents.last().map(|last| last.end());
        let reserved = self.reserve(&doing, end, held - held_before)?;
        space::append(&mut extents, &reserved.extents.borrow());
        self.check_pieces(&doing, &extents)?;
        let rest = size.min(held_before) - before;
        for piece in space::pieces(&extents, before, rest) {
            let from = vec![Arc::new(Buffer::zeroed(piece.length as usize))];
            let write = self.device.write(ByteOffset(piece.start), from, Stability::Volatile);
            let zeroed = rest_zeroes.insert(write).await;
            *rest_zeroes = None;
            zeroed?;
        }
        let fresh = before + rest;
        self.write_zeroes(&reserved, space::pieces(&extents, fresh, size - fresh)).await?;
        let entry = TableFile { size, extents: extents.clone() };
        self.step(
            |state, table| {
                if let Some(name) = state.name_of(file) {
                    table.files.insert(name.clone(), entry);
                }
                Ok(())
            },
            |state| {
                state.forget_unnamed(&reserved);
                *file.extents.borrow_mut() = extents;
                file.size.set(size);
            },
        )
        .await
    }

    async fn shrink(&self, file: &Rc<FileState>, size: u64) -> IoResult<()> {
        let held = self.whole_units(&format!("shrinking a file to {}", ByteCount(size)), size)?;
        let mut extents = file.extents.borrow().clone();
        let freed = space::cut(&mut extents, held);
        let entry = TableFile { size, extents: extents.clone() };
        self.step(
            |state, table| {
                if let Some(name) = state.name_of(file) {
                    table.files.insert(name.clone(), entry);
                }
                Ok(())
            },
            |state| {
                *file.extents.borrow_mut() = extents;
                file.size.set(size);
                if file.unseen.get() > 0 {
                    state.lost.extend(freed);
                }
            },
        )
        .await
    }

    async fn create(&self, name: &str, size: u64) -> IoResult<Rc<FileState>> {
        check_plain_name(name)?;
        let doing = format!("creating {name} of {}", ByteCount(size));
        let taken = || self.fail(IoErrorKind::AlreadyExists, &doing, "there is one");
        if self.state.borrow().files.contains_key(name) {
            return Err(taken());
        }
        let held = self.whole_units(&doing, size)?;
        let file = self.reserve(&doing, None, held)?;
        let extents = file.extents.borrow().clone();
        self.check_pieces(&doing, &extents)?;
        self.write_zeroes(&file, space::pieces(&extents, 0, size)).await?;
        self.step(
            |_, table| {
                if table.files.len() == FILES_MAX {
                    let why = format!("there are {FILES_MAX} files already");
                    return Err(self.fail(IoErrorKind::NoSpace, &doing, &why));
                }
                match table.files.insert(name.to_owned(), TableFile { size, extents }) {
                    None => Ok(()),
                    Some(_) => Err(taken()),
                }
            },
            |state| {
                state.forget_unnamed(&file);
                file.size.set(size);
                let before = state.files.insert(name.to_owned(), Rc::clone(&file));
                assert!(before.is_none(), "the table was seen to have no such file");
            },
        )
        .await?;
        Ok(file)
    }

    async fn rename(&self, from: &str, to: &str) -> IoResult<()> {
        check_plain_name(to)?;
        let missing =
            || self.fail(IoErrorKind::NotFound, &format!("renaming {from} to {to}"), "no such file");
        self.step(
            |_, table| {
                let file = table.files.remove(from).ok_or_else(missing)?;
                table.files.insert(to.to_owned(), file);
                Ok(())
            },
            |state| {
                let file = state.files.remove(from).expect("the table was seen to have it");
                let replaced = state.files.insert(to.to_owned(), file);
                state.unnamed.extend(replaced);
            },
        )
        .await
    }

    async fn remove(&self, name: &str) -> IoResult<()> {
        let missing = || self.fail(IoErrorKind::NotFound, &format!("removing {name}"), "no such file");
        self.step(
            |_, table| table.files.remove(name).map(|_| ()).ok_or_else(missing),
            |state| {
                let removed = state.files.remove(name).expect("the table was seen to have it");
                state.unnamed.push(removed);
            },
        )
        .await
    }
}

impl Directory for ExtentDirectory {
    fn describe(&self) -> String {
        self.0.label.borrow().clone()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        let state = self.0.state.borrow();
        let entry = |(name, file): (&String, &Rc<FileState>)| DirectoryEntry {
            name: name.clone(),
            size: ByteCount(file.size.get()),
        };
        let entries = state.files.iter().map(entry).collect();
        Box::pin(async { Ok(entries) })
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let found = self.0.state.borrow().files.get(name).cloned();
        let missing = || self.0.fail(IoErrorKind::NotFound, &format!("opening {name}"), "no such file");
        let opened = check_plain_name(name).and_then(|()| found.ok_or_else(missing));
        let shared = Rc::clone(&self.0);
        Box::pin(async { Ok(Rc::new(ExtentFile { shared, state: opened? }) as Rc<dyn File>) })
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let (shared, name) = (Rc::clone(&self.0), name.to_owned());
        Box::pin(async move {
            let state = shared.create(&name, size.0).await?;
            Ok(Rc::new(ExtentFile { shared, state }) as Rc<dyn File>)
        })
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        let (shared, from, to) = (Rc::clone(&self.0), from.to_owned(), to.to_owned());
        Box::pin(async move { shared.rename(&from, &to).await })
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        let (shared, name) = (Rc::clone(&self.0), name.to_owned());
        Box::pin(async move { shared.remove(&name).await })
    }

    /// Every change was stable when it returned; only after a failed one is there something to
    /// settle.
    fn sync(&self) -> LocalFuture<IoResult<()>> {
        let shared = Rc::clone(&self.0);
        Box::pin(async move { shared.step(|_, _| Ok(()), |_| ()).await })
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        let free = self.0.state.borrow_mut().gaps().iter().map(|gap| gap.length).sum();
        Box::pin(async move { Ok(ByteCount(free)) })
    }
}

/// Where the copy with this sequence number lies.
fn copy_offset(sequence: u64) -> u64 {
    sequence % 2 * COPY_SPACE
}

fn write_table(device: &dyn BlockDevice, table: &Table) -> LocalFuture<IoResult<()>> {
    let image = table.encode();
    let sector = device.geometry().sector as usize;
    let mut buffer = Buffer::zeroed(image.len().next_multiple_of(sector));
    buffer[..image.len()].copy_from_slice(&image);
    device.write(ByteOffset(copy_offset(table.sequence)), vec![Arc::new(buffer)], Stability::Stable)
}

/// The valid table with the higher sequence number, if there is any.
async fn read_newest(device: &dyn BlockDevice) -> IoResult<Option<Table>> {
    let size = device.geometry().size.0;
    let mut newest: Option<Table> = None;
    for at in [0, COPY_SPACE] {
        if at + COPY_SPACE > size {
            continue;
        }
        let Ok(table) = Table::decode(&read_run(device, at, COPY_SPACE).await?) else { continue };
        let in_place = copy_offset(table.sequence) == at && table.device_size <= size;
        if in_place && newest.as_ref().is_none_or(|known| known.sequence < table.sequence) {
            newest = Some(table);
        }
    }
    Ok(newest)
}

async fn read_run(device: &dyn BlockDevice, at: u64, length: u64) -> IoResult<Buffer> {
    let mut buffers = device.read(ByteOffset(at), vec![Buffer::zeroed(length as usize)]).await?;
    Ok(buffers.pop().expect("a read gives back the buffers it was given"))
}
