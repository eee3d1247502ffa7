//! An extent directory under kills and power cuts: each change of names and sizes is atomic, and durable once
//! observed.

use super::{DriveOptions, SimDrive, SimLimits, SimOutcome, Simulation};
use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, ExtentDirectory, File, IoResult, Random,
    Stability, World,
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

/// Bytes written to each file: its first sector.
const SECTOR: usize = 512;

/// The model's knowledge of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileModel {
    size: u64,
    /// The fill byte of its first sector, once stable.
    tag: u8,
    is_stable: bool,
}

type Files = BTreeMap<String, FileModel>;

#[derive(Default)]
struct Model {
    /// State after the last change that returned.
    before: Files,
    /// State after the change in flight, if there is one.
    after: Option<Files>,
    tag_last: u8,
}

async fn open(drive: &Rc<SimDrive>) -> IoResult<ExtentDirectory> {
    ExtentDirectory::open(Rc::clone(drive) as Rc<dyn BlockDevice>).await
}

/// Compares the directory with the model; the state found becomes the model's state.
async fn check(directory: &ExtentDirectory, model: &RefCell<Model>) {
    let mut found: BTreeMap<String, (u64, u8)> = BTreeMap::new();
    for entry in directory.list().await.expect("readable") {
        let file = directory.open(&entry.name).await.expect("listed");
        let mut bytes = file
            .read(ByteOffset(0), vec![Buffer::zeroed(SECTOR), Buffer::zeroed(entry.size.0 as usize - SECTOR)])
            .await
            .expect("readable");
        assert!(
            bytes.pop().expect("two").iter().all(|&byte| byte == 0),
            "{}: added bytes are zero",
            entry.name
        );
        let first = bytes.pop().expect("two");
        assert!(first.iter().all(|&byte| byte == first[0]), "{}: a mixture", entry.name);
        found.insert(entry.name, (entry.size.0, first[0]));
    }
    let mut model = model.borrow_mut();
    let fits = |state: &Files| {
        state.len() == found.len()
            && state.iter().zip(&found).all(|((name, known), (found_name, &(size, tag)))| {
                let tag_fits = tag == known.tag || tag == 0 && !known.is_stable;
                name == found_name && known.size == size && tag_fits
            })
    };
    let after = model.after.take();
    let fitting = [Some(&model.before), after.as_ref()].into_iter().flatten().any(fits);
    assert!(fitting, "found {found:?}, expected {:?} or {after:?}", model.before);
    let known = |(size, tag)| FileModel { size, tag, is_stable: true };
    model.before = found.into_iter().map(|(name, file)| (name, known(file))).collect();
}

/// Creates, renames, removes and resizes files at random, for ever.
async fn work(world: World, directory: ExtentDirectory, model: Rc<RefCell<Model>>) {
    let mut random = world.random("changes");
    loop {
        let (after, change) = draw(&mut random, &mut model.borrow_mut());
        model.borrow_mut().after = Some(after.clone());
        let made = match &change {
            Change::Create(name, size) => Some(directory.create(name, ByteCount(*size)).await.expect("room")),
            Change::Rename(from, to) => {
                directory.rename(from, to).await.expect("there");
                None
            }
            Change::Remove(name) => {
                directory.remove(name).await.expect("there");
                None
            }
            Change::Resize(name, size) => {
                let file: Rc<dyn File> = directory.open(name).await.expect("there");
                file.resize(ByteCount(*size)).await.expect("room");
                None
            }
        };
        {
            let mut model = model.borrow_mut();
            model.before = after;
            model.after = None;
        }
        if let (Some(file), Change::Create(name, _)) = (made, change) {
            let tag = model.borrow().before[&name].tag;
            let from = vec![Arc::new(Buffer::copy_of(&[tag; SECTOR]))];
            file.write(ByteOffset(0), from, Stability::Stable).await.expect("there");
            model.borrow_mut().before.get_mut(&name).expect("just made").is_stable = true;
        }
    }
}

enum Change {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
    Resize(String, u64),
}

fn draw(random: &mut Random, model: &mut Model) -> (Files, Change) {
    let name = |random: &mut Random| ["a", "b", "c", "d"][random.below(4) as usize].to_owned();
    let size = |random: &mut Random| (1 + random.below(400)) * 1024;
    let mut files = model.before.clone();
    let (first, second) = (name(random), name(random));
    let change = match files.remove(&first) {
        None => {
            model.tag_last = model.tag_last % 250 + 1;
            let size = size(random);
            files.insert(first.clone(), FileModel { size, tag: model.tag_last, is_stable: false });
            Change::Create(first, size)
        }
        Some(known) if random.percent(40.0) => {
            files.insert(second.clone(), known);
            Change::Rename(first, second)
        }
        Some(known) if random.percent(50.0) => {
            let size = size(random);
            files.insert(first.clone(), FileModel { size, ..known });
            Change::Resize(first, size)
        }
        Some(_) => Change::Remove(first),
    };
    (files, change)
}

fn run(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount::mib(16)));
    let blank = Rc::clone(&drive);
    simulation
        .run(SimLimits::generous(), |_| async move {
            ExtentDirectory::format(blank as Rc<dyn BlockDevice>).await.map(drop)
        })
        .completed()
        .expect("a drive without faults");
    let model = Rc::new(RefCell::new(Model::default()));
    let mut crashes = simulation.random("crashes");
    for _ in 0..10 {
        let (drive, model) = (Rc::clone(&drive), Rc::clone(&model));
        // Often soon after opening: state that was only observed, never made stable, is lost there.
        let polls = 2_f64.powf(2.0 + 5.0 * crashes.unit()) as u64;
        let limits = SimLimits { polls: Some(polls), span: Duration::from_secs(60), ..SimLimits::generous() };
        let outcome: SimOutcome<()> = simulation.run(limits, |world| async move {
            let directory = open(&drive).await.expect("one copy of the table is whole at any time");
            check(&directory, &model).await;
            work(world, directory, model).await;
        });
        assert_eq!(outcome, SimOutcome::Crashed);
        match crashes.below(3) {
            0 => simulation.cut_power(),
            1 => simulation.kill(),
            _ => {
                simulation.kill();
                simulation.cut_power();
            }
        }
    }
    let main = |_| async move { check(&open(&drive).await.expect("whole"), &model).await };
    simulation.run(SimLimits::generous(), main).completed();
}

#[test]
fn an_extent_directory_survives_kills_and_power_cuts_with_atomic_changes() {
    for seed in 0..100 {
        run(seed);
    }
}
