//! State transitions of an extent directory.

use super::{
    extent_file::FileState,
    space,
    table::{EXTENTS_MAX, Extent, FILES_MAX, Table, TableFile, UNIT},
    write_table,
};
use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoError, IoErrorKind, IoResult, LocalFuture, Stability,
    plain_name::check_plain_name,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::Arc,
};

/// The directory in memory: see invariants 1 to 3 of the parent module.
pub(super) struct State {
    pub sequence: u64,
    pub device_size: u64,
    pub files: BTreeMap<String, Rc<FileState>>,
    /// Files that hold space without a name: removed but still open, or not yet named.
    pub unnamed: Vec<Rc<FileState>>,
    /// Space truncated from files while operations on it were in flight: free after the next open.
    pub lost: Vec<Extent>,
}

/// The only writer of tables: invariant 5.
#[derive(Default)]
pub(super) struct Writer {
    /// A table write that has not completed.
    under_way: Option<LocalFuture<IoResult<()>>>,
    /// The last table write failed or was abandoned: the device may hold a newer state than memory.
    is_uncertain: bool,
}

/// A device and what is on it.
pub(super) struct Shared {
    pub device: Rc<dyn BlockDevice>,
    pub label: RefCell<String>,
    pub state: RefCell<State>,
    pub writer: tokio::sync::Mutex<Writer>,
}

impl State {
    fn table(&self) -> Table {
        let files = self.files.iter().map(|(name, file)| {
            let entry = TableFile { size: file.size.get(), extents: file.extents.borrow().clone() };
            (name.clone(), entry)
        });
        Table { sequence: self.sequence, device_size: self.device_size, files: files.collect() }
    }

    pub fn gaps(&mut self) -> Vec<Extent> {
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
    pub fn sector(&self) -> u32 {
        self.device.geometry().sector
    }

    pub fn label_of(&self, file: &Rc<FileState>) -> String {
        let state = self.state.borrow();
        let name = state.name_of(file).map_or("a removed file", |name| name);
        format!("{name} on {}", self.label.borrow())
    }

    pub fn fail(&self, kind: IoErrorKind, doing: &str, why: &str) -> IoError {
        IoError::new(kind, format!("{doing} on {}: {why}", self.label.borrow()))
    }

    /// One transition: `plan` changes the table, the table is written, `apply` makes the same change in
    /// memory.
    pub async fn step(
        &self,
        plan: impl FnOnce(&State, &mut Table) -> IoResult<()>,
        apply: impl FnOnce(&mut State),
    ) -> IoResult<()> {
        let mut writer = self.writer.lock().await;
        if let Some(abandoned) = &mut writer.under_way {
            // The write below replaces whatever an earlier one left.
            let _ = abandoned.await;
            writer.under_way = None;
        }
        let table = {
            let state = self.state.borrow();
            let before = state.table();
            let mut table = before.clone();
            plan(&state, &mut table)?;
            if table == before && !writer.is_uncertain {
                drop(state);
                apply(&mut self.state.borrow_mut());
                return Ok(());
            }
            table
        };
        writer.is_uncertain = true;
        let mut table = table;
        // Write both copies, one after the other: damage to one of them later then loses no change.
        for _copy in 0..2 {
            table.sequence += 1;
            writer.under_way = Some(write_table(&*self.device, &table));
            let written = writer.under_way.as_mut().expect("set on the line above").await;
            writer.under_way = None;
            written?;
        }
        writer.is_uncertain = false;
        let mut state = self.state.borrow_mut();
        state.sequence = table.sequence;
        apply(&mut state);
        Ok(())
    }

    /// Reserves `need` more bytes in an unnamed file; `after` is the current end of the file that will get
    /// them.
    fn reserve(&self, doing: &str, after: Option<u64>, need: u64) -> IoResult<Rc<FileState>> {
        let mut state = self.state.borrow_mut();
        let gaps = state.gaps();
        let free: u64 = gaps.iter().map(|gap| gap.length).sum();
        let Some(extents) = space::pick(gaps, after, need) else {
            let why = format!("{} needed, {} free", ByteCount(need), ByteCount(free));
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
        let too_large = || self.fail(IoErrorKind::NoSpace, doing, &format!("{size} bytes exceed any device"));
        size.checked_next_multiple_of(UNIT).ok_or_else(too_large)
    }

    fn check_pieces(&self, doing: &str, extents: &[Extent]) -> IoResult<()> {
        if extents.len() <= EXTENTS_MAX {
            Ok(())
        } else {
            let why = format!("the free space has more than {EXTENTS_MAX} extents");
            Err(self.fail(IoErrorKind::NoSpace, doing, &why))
        }
    }

    /// Zeroes `pieces`, held by `holder`, on stable storage in runs of 1 MiB.
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

    pub async fn grow(
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

    pub async fn shrink(&self, file: &Rc<FileState>, size: u64) -> IoResult<()> {
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

    pub async fn create(&self, name: &str, size: u64) -> IoResult<Rc<FileState>> {
        check_plain_name(name)?;
        let doing = format!("creating {name} of {}", ByteCount(size));
        let taken = || self.fail(IoErrorKind::AlreadyExists, &doing, "the name is taken");
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
                assert!(before.is_none(), "the table had no such file");
            },
        )
        .await?;
        Ok(file)
    }

    pub async fn rename(&self, from: &str, to: &str) -> IoResult<()> {
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
                let file = state.files.remove(from).expect("the table had it");
                let replaced = state.files.insert(to.to_owned(), file);
                state.unnamed.extend(replaced);
            },
        )
        .await
    }

    pub async fn remove(&self, name: &str) -> IoResult<()> {
        let missing = || self.fail(IoErrorKind::NotFound, &format!("removing {name}"), "no such file");
        self.step(
            |_, table| table.files.remove(name).map(|_| ()).ok_or_else(missing),
            |state| {
                let removed = state.files.remove(name).expect("the table had it");
                state.unnamed.push(removed);
            },
        )
        .await
    }
}
