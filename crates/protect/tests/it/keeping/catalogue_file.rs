//! The file of a catalogue: torn ends, damage, power cuts, failed syncs, two runners, prefixes, and a lost file.

use super::{
    catalogue_bytes::{
        check, check_input, check_note, compacted_example, entries, example, input, input_of, minute, note,
        notes, points, read, start,
    },
    seeds,
    set_model::SetModel,
};
use protect::{
    backup::UncoveredCut,
    backup_schedule::BackupKind,
    catalogue::{
        BackupStage, CatalogueEntry, CatalogueFile, CatalogueFileError, CatalogueLine, CatalogueReadError,
        CatalogueRepair, CatalogueScope, CutPoint, FilledSlotLine, FoundPoint, LabelWord, MissedRange,
        PointNote, SetId, rebuild, reconcile,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use world::{
    IoErrorKind, Random,
    real::HostStateFile,
    sim::{SimStateFile, StateFileFaults},
};

fn open(disk: &SimStateFile) -> Result<CatalogueFile, CatalogueFileError> {
    CatalogueFile::open(Box::new(disk.open()), "mail", SetId::new(7), "spindle test", "runner", &minute(0))
}

fn missed(number: u64) -> CatalogueEntry {
    CatalogueEntry::Missed(MissedRange {
        of: "1h".parse().unwrap(),
        first_s: 0,
        last_s: 3_600,
        count: 1 + number,
        // Of several sectors now and then.
        why: "x".repeat((number * 97 % 1_500) as usize),
    })
}

/// Appends under faults: an acknowledged line is never lost, whatever fails, and no crash makes a file unreadable. Then a
/// byte is changed: within the file that is damage.
pub fn check_seed(seed: u64) {
    let mut random = Random::new(seed, "catalogue");
    let disk = SimStateFile::new("mail.catalogue", seed);
    // Lines that were acknowledged, or are before one that was; and all that the file showed last.
    let mut stable: Vec<u64> = Vec::new();
    let mut shown: Vec<u64> = Vec::new();
    let mut number = 0;
    for _ in 0..1 + random.below(6) {
        disk.set_faults(faults(&mut random));
        if let Ok(mut file) = open(&disk) {
            for _ in 0..random.below(8) {
                number += 1;
                match file.append(missed(number), &minute(number)) {
                    Ok(()) => {
                        shown.push(number);
                        stable.clone_from(&shown);
                    }
                    Err(CatalogueFileError::Io(_)) => {
                        let again = file.append(missed(number), &minute(number));
                        assert!(matches!(again, Err(CatalogueFileError::Broken { .. })), "{again:?}");
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        if random.percent(60.0) {
            disk.cut_power();
        }
        disk.set_faults(StateFileFaults::default());
        let bytes = disk.contents();
        let Some(found) = read(&bytes, CatalogueScope::All, 1 << 20).expect("no crash damages a catalogue")
        else {
            assert!(stable.is_empty(), "all is lost");
            shown.clear();
            continue;
        };
        let numbers: Vec<u64> = found.catalogue.missed().iter().map(|(_, missed)| missed.count - 1).collect();
        // A line that failed may be there.
        assert!(stable.iter().all(|number| numbers.contains(number)), "{stable:?} of {numbers:?}");
        shown = numbers;
    }
    disk.cut_power();
    change_a_byte(&disk.contents(), &mut random);
}

fn faults(random: &mut Random) -> StateFileFaults {
    let at = random.below(20);
    let none = StateFileFaults::default();
    match random.below(4) {
        0 => StateFileFaults { power_cut: Some(at), ..none },
        1 => StateFileFaults { no_space: at..at + 2, ..none },
        2 => StateFileFaults { failed_syncs: at..at + 2, ..none },
        _ => none,
    }
}

fn change_a_byte(bytes: &[u8], random: &mut Random) {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    if lines < 3 {
        return;
    }
    let mut changed = bytes.to_vec();
    let last_line = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("several lines");
    let is_torn = read(bytes, CatalogueScope::Live, 1 << 20).unwrap().unwrap().dropped_bytes > 0;
    if is_torn {
        return;
    }
    let at = random.below(last_line as u64 + 1) as usize;
    changed[at] ^= 1 << random.below(8);
    let error = read(&changed, CatalogueScope::Live, 1 << 20).expect_err("damage within the file");
    let is_first = bytes[..at].iter().all(|byte| *byte != b'\n');
    assert_eq!(is_first, error == CatalogueReadError::NotACatalogue, "byte {at}: {error}");
}

#[test]
fn an_acknowledged_line_survives_and_a_changed_byte_is_damage() {
    seeds(2000).for_each(check_seed);
}

#[test]
fn every_prefix_reads_to_a_state_that_can_be_made_to_agree() {
    let bytes = example();
    let mut states = BTreeSet::new();
    for end in 0..=bytes.len() {
        assert_eq!(check(&bytes[..end]), bytes[..end].contains(&b'\n'), "cut at {end}");
        let Some(found) = read(&bytes[..end], CatalogueScope::Live, 1 << 20).unwrap() else { continue };
        if !states.insert(found.lines) {
            continue;
        }
        // The pools have any part of the points of what has begun or is being deleted.
        for parts in 0..4 {
            let existing: Vec<FoundPoint> = found
                .catalogue
                .rows()
                .flat_map(|(sequence, row)| {
                    let is_whole = row.stage == BackupStage::Cut;
                    let points = points(sequence).into_iter().enumerate();
                    let points = points.filter(move |(index, _)| is_whole || parts & (1 << index) != 0);
                    points.map(move |(_, point)| found_point(point, sequence)).collect::<Vec<_>>()
                })
                .collect();
            check_agreement(&bytes[..end], existing);
        }
    }
    assert_eq!(states.len(), entries().len() + 2);
}

fn found_point(point: CutPoint, sequence: u64) -> FoundPoint {
    let name = start(sequence, 0, BackupKind::Full, &[]).name;
    FoundPoint { point, name, note: note(sequence, &[]).encode().into_bytes() }
}

/// Carries out the repairs; then there are none, and points and backups are the same.
fn check_agreement(bytes: &[u8], mut existing: Vec<FoundPoint>) {
    let disk = SimStateFile::with_contents("mail.catalogue", 1, bytes.to_vec());
    let mut file = open(&disk).expect("a prefix is readable");
    let pools = BTreeSet::from(["dbs".to_owned(), "logs".to_owned()]);
    let uncovered =
        if bytes.len().is_multiple_of(2) { UncoveredCut::Remove } else { UncoveredCut::KeepAsCrash };
    let now = minute(60);
    for repair in reconcile(file.catalogue(), &existing, &pools, uncovered) {
        let mut remove = |points: Vec<CutPoint>| existing.retain(|found| !points.contains(&found.point));
        let entry = match repair {
            CatalogueRepair::Adopt(found) => CatalogueEntry::Found(found),
            CatalogueRepair::Remove { points, failed } => {
                remove(points);
                CatalogueEntry::Failed(failed)
            }
            CatalogueRepair::DeleteAgain { deletion, points, silent } => {
                assert!(silent.is_empty());
                remove(points);
                CatalogueEntry::Deleted(deletion)
            }
            other => panic!("{other:?}"),
        };
        file.append(entry, &now).expect("a repair is consistent");
    }
    assert_eq!(reconcile(file.catalogue(), &existing, &pools, uncovered), []);
    let live: BTreeSet<u64> = file.catalogue().rows().map(|(sequence, _)| sequence).collect();
    let there: BTreeSet<u64> =
        existing.iter().map(|found| PointNote::decode(&found.note).unwrap().unwrap().sequence).collect();
    assert_eq!(live, there);
}

#[test]
fn any_changed_byte_is_found_and_nothing_panics() {
    let bytes = example();
    let whole = read(&bytes, CatalogueScope::Live, 1 << 20).unwrap().unwrap();
    for index in 0..bytes.len() {
        // Lines are text: what is no longer any is another finding than what is.
        let flips: &[u8] = if index % 2 == 0 { &[1] } else { &[0x80] };
        for flip in flips {
            let mut changed = bytes.clone();
            changed[index] ^= flip;
            check(&changed);
            if let Ok(found) = read(&changed, CatalogueScope::Live, 1 << 20) {
                let lines = found.expect("the header is there").lines;
                assert_eq!(lines, whole.lines - 1, "byte {index} of the last line alone");
            }
        }
    }
    assert!(check_input(&input()), "the lines of the example, with new checksums");
    assert!(check_input(&input_of(&compacted_example())), "those of the compacted one");
}

#[test]
fn runners_and_reports_refuse_the_same_catalogues() {
    let example = read(&example(), CatalogueScope::All, 1 << 20).unwrap().unwrap();
    let header = CatalogueEntry::Header(example.catalogue.header().clone());
    let all: Vec<(u64, CatalogueEntry)> = [(0, header)].into_iter().chain(entries()).collect();
    let mut random = Random::new(27, "scopes");
    let mut refused = 0;
    for _ in 0..3_000 {
        // Some lines are missing, some come twice, some come later.
        let mut chosen: Vec<&(u64, CatalogueEntry)> = all.iter().collect();
        for _ in 0..1 + random.below(3) {
            let at = 1 + random.below(chosen.len() as u64 - 1) as usize;
            let entry = chosen.remove(at);
            for _ in 0..random.below(3) {
                let at = 1 + random.below(chosen.len() as u64) as usize;
                chosen.insert(at, entry);
            }
        }
        let line = |(line, (at, entry)): (usize, &&(u64, CatalogueEntry))| {
            CatalogueLine { line: line as u64, at_s: minute(*at).civil.0, age_s: 0, entry: entry.clone() }
                .encode()
        };
        let bytes: Vec<u8> = chosen.iter().enumerate().flat_map(line).collect();
        refused += usize::from(!check(&bytes));
    }
    assert!((1_000..3_000).contains(&refused), "{refused} were refused");
}

#[test]
fn notes_of_points_have_one_form_and_nothing_panics() {
    let mut random = Random::new(27, "notes");
    for (name, note) in notes() {
        let bytes = note.encode().into_bytes();
        assert!(check_note(&bytes), "{name}");
        for _ in 0..2_000 {
            let mut changed = bytes.clone();
            let at = random.below(bytes.len() as u64) as usize;
            changed[at] = b" -+.,?:0az\xff"[random.below(11) as usize];
            check_note(&changed);
            check_note(&changed[..at]);
        }
    }
}

#[test]
fn contradictions_are_refused_before_they_are_written_and_named_when_they_are_read() {
    let disk = SimStateFile::with_contents("mail.catalogue", 1, example());
    let mut file = open(&disk).unwrap();
    let before = disk.contents();
    let find = |name: &str| {
        let mut all = entries().into_iter().map(|(_, entry)| entry);
        all.find(|entry| serde_json::to_value(entry).unwrap().get(name).is_some()).unwrap()
    };
    let again = |backup| CatalogueEntry::Begun(start(backup, 60, BackupKind::Full, &["1h"]));
    let double = FilledSlotLine { of: "1h".parse().unwrap(), start_s: 0 };
    let mut doubled = start(9, 60, BackupKind::Full, &["1h"]);
    doubled.slots.push(double);
    for (entry, refusal) in [
        (CatalogueEntry::Header(file.catalogue().header().clone()), "a header follows the first line"),
        (again(6), "backup 6 begins after backup 6: numbers go back"),
        (CatalogueEntry::Begun(doubled), "backup 9 cannot fill a slot of 1h"),
        (find("cut"), "backup 1 is cut; it is cut"),
        (find("failed"), "backup 3 failed; it is unknown, or has ended"),
        (find("released"), "backup 1 is released of \"legal 7/26\", which does not hold it"),
        (find("deleted"), "backup 2 is deleted; it is unknown, or has ended"),
        (find("lost"), "backup 5 is lost; it is unknown"),
        (find("found"), "backup 6 is found and was never missing"),
    ] {
        let error = file.append(entry, &minute(60)).unwrap_err().to_string();
        assert!(error.contains(refusal), "{error}");
    }
    let CatalogueEntry::Locked(mut lock) = find("locked") else { panic!() };
    lock.for_s -= 1;
    let error = file.append(CatalogueEntry::Locked(lock), &minute(60)).unwrap_err().to_string();
    assert!(error.contains("the lock of backup 1 becomes shorter"), "{error}");
    for (backup, refusal) in
        [(1, "s before its lock ends"), (4, "backup 4 is being deleted while \"upgrade\" holds it")]
    {
        let CatalogueEntry::Deleting(mut deletion) = find("deleting") else { panic!() };
        deletion.backup = backup;
        let error = file.append(CatalogueEntry::Deleting(deletion), &minute(60)).unwrap_err().to_string();
        assert!(error.contains(refusal), "{error}");
    }
    assert_eq!(disk.contents(), before, "nothing was written");

    // The same in a file: the line that contradicts is named.
    let bytes = example();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let cut = lines[4];
    let number = format!("\"line\":{}", lines.len());
    let repeated = String::from_utf8(cut[18..cut.len() - 1].to_vec()).unwrap().replace("\"line\":4", &number);
    let repeated = repeated.replace("\"age_s\":0", "\"age_s\":900");
    let added = [bytes.clone(), world::checked_line(format!("{{{repeated}").as_bytes())].concat();
    let error = read(&added, CatalogueScope::Live, 1 << 20).unwrap_err().to_string();
    assert_eq!(error, format!("line {} is damaged: backup 1 is cut; it is cut", lines.len() + 1));
}

#[test]
fn other_files_versions_sets_and_runners_are_refused() {
    let text = String::from_utf8(example()).unwrap();
    let first = text.lines().next().unwrap();
    let head = |from: &str, to: &str| {
        let changed = format!("{{{}", first[18..].replace(from, to));
        [world::checked_line(changed.as_bytes()), format!("{}\n", text.lines().nth(1).unwrap()).into()]
            .concat()
    };
    let refusal = |bytes: Vec<u8>| {
        let disk = SimStateFile::with_contents("mail.catalogue", 1, bytes.clone());
        let refused = open(&disk).err().expect("refused").to_string();
        assert_eq!(disk.contents(), bytes, "a refused file stays as it is");
        refused
    };
    assert!(refusal(b"From: anna\nTo: ben\n".to_vec()).contains("it is no catalogue of backups"));
    assert!(refusal(head("spindle-backups", "spindle-run")).contains("it is no catalogue of backups"));
    let newer = refusal(head("\"version\":1", "\"version\":3"));
    assert!(newer.contains("of version 3, and this program knows version 2; use a newer program"), "{newer}");
    let other = refusal(head("\"set\":\"mail\"", "\"set\":\"dbs\""));
    assert!(other.contains("it is the catalogue of dbs, not of mail"), "{other}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mail.catalogue");
    let open = || {
        let file = HostStateFile::open(&path)?;
        Ok(CatalogueFile::open(Box::new(file), "mail", SetId::new(7), "spindle test", "runner", &minute(0))
            .unwrap())
    };
    let mut first = open().unwrap();
    first.append(missed(1), &minute(1)).unwrap();
    let second: Result<CatalogueFile, world::IoError> = open();
    assert_eq!(second.err().expect("one runner a set").kind(), IoErrorKind::Busy);
    drop(first);
    assert_eq!(open().unwrap().lines(), 3, "header, opened, missed");
}

#[test]
fn locks_end_by_the_confirmed_clock_alone() {
    let disk = SimStateFile::new("mail.catalogue", 1);
    let mut file = open(&disk).unwrap();
    let mut first = start(1, 0, BackupKind::Full, &["1h"]);
    first.lock_s = Some(3_600);
    file.append(CatalogueEntry::Begun(first), &minute(0)).unwrap();
    let CatalogueEntry::Cut(cut) = entries().remove(2).1 else { panic!() };
    file.append(CatalogueEntry::Cut(cut), &minute(0)).unwrap();
    let deleting = || {
        entries().into_iter().find_map(|(_, entry)| match entry {
            CatalogueEntry::Deleting(mut deletion) => {
                deletion.backup = 1;
                Some(CatalogueEntry::Deleting(deletion))
            }
            _ => None,
        })
    };
    // A clock ten years ahead ends no lock.
    let mut ahead = minute(59);
    ahead.civil.0 += 3_650 * 86_400;
    let error = file.append(deleting().unwrap(), &ahead).unwrap_err().to_string();
    assert!(error.contains("60 s before its lock ends"), "{error}");
    let retained = file.catalogue().retained(file.catalogue().clock().age_at(&ahead), &BTreeMap::new());
    assert_eq!((retained[0].age_s, retained[0].locked_s), (59 * 60, Some(3_600)));
    file.append(deleting().unwrap(), &minute(60)).unwrap();
}

#[test]
fn a_lost_catalogue_is_made_again_from_the_notes_of_points() {
    for seed in seeds(60) {
        let mut model = SetModel::new(seed);
        for _ in 0..200 {
            model.elapsed_s += model.shortest_s() / 2;
            let lived = if model.is_running() { model.look() } else { model.start() };
            lived.expect("nothing dies here");
        }
        let found = read(&model.bytes(), CatalogueScope::Live, 1 << 20).unwrap().unwrap();
        let rebuilt = rebuild(model.found_points(), "mail", None).unwrap();
        let disk = SimStateFile::new("mail.catalogue", seed);
        let file = rebuilt.write(Box::new(disk.open()), "spindle test", "rebuild", &minute(0)).unwrap();
        assert_eq!(file.catalogue().header().id, found.catalogue.header().id);
        let rows = |catalogue: &protect::catalogue::BackupCatalogue| -> Vec<_> {
            let rows = catalogue.live();
            rows.map(|(sequence, row)| {
                (sequence, row.start.clone().slots, row.points.clone(), row.start.name.clone())
            })
            .collect()
        };
        assert_eq!(rows(file.catalogue()), rows(&found.catalogue));
        assert!(
            file.catalogue().live().all(|(_, row)| row.label == Some(LabelWord::Crash)),
            "no thaw confirms more"
        );
        for (period, filled) in file.catalogue().filled() {
            // A slot whose backup is gone leaves no note.
            assert!(filled.last() <= found.catalogue.filled()[period].last(), "{period}");
            let mut live = file.catalogue().live().flat_map(|(_, row)| row.start.slots.clone());
            let newest = live.rfind(|slot| slot.of == *period).map(|slot| slot.start_s);
            assert_eq!(filled.last().map(|start| start.0), newest);
        }
        assert!(file.catalogue().header().is_rebuilt);
    }
    let refusal = rebuild(&[], "mail", None).unwrap_err().to_string();
    assert!(refusal.contains("no point of set \"mail\" was found"), "{refusal}");
    let [first, second] = [0, 1].map(|index| found_point(points(1)[index].clone(), 1));
    assert_eq!(
        rebuild(std::slice::from_ref(&first), "mail", None).unwrap().incomplete,
        std::slice::from_ref(&first.name)
    );
    let other =
        String::from_utf8(second.note.clone()).unwrap().replace("0123456789abcdef", "00000000000000aa");
    let both = [first, FoundPoint { note: other.into_bytes(), ..second }];
    let refusal = rebuild(&both, "mail", None).unwrap_err().to_string();
    assert!(
        refusal.contains("two sets were called \"mail\": 00000000000000aa, 0123456789abcdef"),
        "{refusal}"
    );
    assert!(rebuild(&both, "mail", Some(&SetId::new(0xaa))).is_ok());
}
