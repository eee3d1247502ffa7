//! Mails that are delivered while the power fails at any operation, and a reader moves them: no mail is empty or in part, none is
//! there twice, and none is lost that was counted at the end.

use recovery::{
    mail_files::MailFiles,
    maildir::MaildirWriter,
    planted::{RecoveryBug, with_recovery_bug},
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};
use world::{IoError, IoErrorKind, IoResult, Random};

/// A place of a mail: folder and name.
type MailPath = (&'static str, String);

/// The files as processes see them, and as a power cut may leave them: names and contents reach the drive in any order, unless
/// a flush was between.
struct Drive {
    random: Random,
    /// Numbers of the files.
    names: BTreeMap<MailPath, usize>,
    stable_names: BTreeMap<MailPath, usize>,
    unsynced: Vec<NameChange>,
    contents: Vec<Content>,
    /// Operations until the power fails, if it does.
    power: Option<u64>,
}

#[derive(Clone, Default)]
struct Content {
    cached: Vec<u8>,
    stable: Vec<u8>,
}

#[derive(Clone)]
enum NameChange {
    Made(MailPath, usize),
    Moved { from: MailPath, to: MailPath },
}

impl Drive {
    fn work(&mut self) -> IoResult<()> {
        let has_power = match &mut self.power {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        };
        if has_power { Ok(()) } else { Err(IoError::new(IoErrorKind::Disconnected, "the power is cut")) }
    }

    fn rename(&mut self, from: MailPath, to: MailPath) {
        let file = self.names.remove(&from).expect("it is there");
        self.names.insert(to.clone(), file);
        self.unsynced.push(NameChange::Moved { from, to });
    }

    /// A mail program shows a mail: at any moment.
    fn read_one(&mut self) {
        let new: Vec<MailPath> = self.names.keys().filter(|(folder, _)| *folder == "new").cloned().collect();
        if let Some((_, name)) = new.get(self.random.below(new.len().max(1) as u64) as usize) {
            self.rename(("new", name.clone()), ("cur", format!("{name}:2,S")));
        }
    }

    fn flush(&mut self) {
        self.stable_names = self.names.clone();
        self.unsynced.clear();
        for content in &mut self.contents {
            content.stable = content.cached.clone();
        }
    }

    fn cut_power(&mut self) {
        let kept_percent = [0.0, 30.0, 70.0, 100.0][self.random.below(4) as usize];
        for change in std::mem::take(&mut self.unsynced) {
            if !self.random.percent(kept_percent) {
                continue;
            }
            match change {
                NameChange::Made(place, file) => drop(self.stable_names.insert(place, file)),
                NameChange::Moved { from, to } => {
                    if let Some(file) = self.stable_names.remove(&from) {
                        self.stable_names.insert(to, file);
                    }
                }
            }
        }
        for content in &mut self.contents {
            // A part of it was written back, or nothing, or all.
            let grown = content.cached.len().saturating_sub(content.stable.len()) as u64;
            let length = match self.random.percent(kept_percent) {
                true => content.cached.len(),
                false => content.stable.len() + self.random.below(grown + 1) as usize,
            };
            let length = length.min(content.cached.len());
            content.stable = content.cached[..length].to_vec();
            content.cached = content.stable.clone();
        }
        self.names = self.stable_names.clone();
        self.power = None;
    }
}

#[derive(Clone)]
struct SimMailFiles(Rc<RefCell<Drive>>);

impl MailFiles for SimMailFiles {
    fn list(&self, folder: &str) -> IoResult<Vec<String>> {
        let mut drive = self.0.borrow_mut();
        drive.work()?;
        let names =
            drive.names.keys().filter(|(of, _)| *of == folder).map(|(_, name)| name.clone()).collect();
        // Readers are not stopped by a writer that lists.
        if drive.random.percent(50.0) {
            drive.read_one();
        }
        Ok(names)
    }

    fn begin(&self, name: &str, mail: &[u8]) -> IoResult<()> {
        let mut drive = self.0.borrow_mut();
        let drive = &mut *drive;
        drive.work()?;
        let place = ("tmp", name.to_owned());
        let file = match drive.names.get(&place) {
            Some(file) => *file,
            None => {
                drive.contents.push(Content::default());
                let file = drive.contents.len() - 1;
                drive.names.insert(place.clone(), file);
                drive.unsynced.push(NameChange::Made(place, file));
                file
            }
        };
        drive.contents[file].stable.clear();
        drive.contents[file].cached = mail.to_vec();
        Ok(())
    }

    fn deliver(&self, name: &str) -> IoResult<()> {
        let mut drive = self.0.borrow_mut();
        drive.work()?;
        drive.rename(("tmp", name.to_owned()), ("new", name.to_owned()));
        if drive.random.percent(20.0) {
            drive.read_one();
        }
        Ok(())
    }

    fn flush(&self) -> IoResult<()> {
        let mut drive = self.0.borrow_mut();
        drive.work()?;
        drive.flush();
        Ok(())
    }
}

/// Some deliveries are of more mails than wait for one flush.
fn mails_of(seed: u64) -> u64 {
    if seed.is_multiple_of(25) { 1_100 } else { 40 }
}

fn mail_of(number: u64) -> (String, Vec<u8>) {
    let name = format!("{}.12-{number}-0.priv1.edb", 1_795_860_000 + number);
    (name, format!("Subject: mail {number}\n\n{}", "x".repeat((number * 37 % 300) as usize)).into_bytes())
}

/// The mails in `new` and `cur`, each of which is whole and there once.
fn delivered(drive: &Drive, mails: u64) -> u64 {
    let mails: BTreeMap<String, Vec<u8>> = (0..mails).map(mail_of).collect();
    let mut seen = BTreeMap::new();
    for ((folder, name), file) in drive.names.iter().filter(|((folder, _), _)| *folder != "tmp") {
        let plain = name.split(':').next().expect("a part");
        assert!(drive.contents[*file].cached == mails[plain], "{folder}/{name} is not the whole mail");
        let before = seen.insert(plain.to_owned(), *folder);
        assert_eq!(before, None, "{name} is there twice");
    }
    seen.len() as u64
}

fn fetch(files: &SimMailFiles, mails: u64) -> IoResult<u64> {
    let mut maildir = MaildirWriter::of(Box::new(files.clone()))?;
    for (name, mail) in (0..mails).map(mail_of) {
        maildir.add(&name, &mail)?;
    }
    maildir.finish()?;
    assert_eq!(maildir.written + maildir.kept, mails);
    Ok(maildir.written)
}

fn check_seed(seed: u64) {
    let (mut random, mails) = (Random::new(seed, "deliveries"), mails_of(seed));
    let drive = Drive {
        random: Random::new(seed, "drive"),
        names: BTreeMap::new(),
        stable_names: BTreeMap::new(),
        unsynced: Vec::new(),
        contents: Vec::new(),
        power: None,
    };
    let files = SimMailFiles(Rc::new(RefCell::new(drive)));
    for _ in 0..1 + random.below(4) {
        files.0.borrow_mut().power = random.percent(80.0).then(|| random.below(2 * mails + 10));
        let is_done = fetch(&files, mails).is_ok();
        files.0.borrow_mut().cut_power();
        let there = delivered(&files.0.borrow(), mails);
        assert!(!is_done || there == mails, "{there} mails are there after all were written");
    }
    fetch(&files, mails).expect("nothing fails");
    files.0.borrow_mut().cut_power();
    assert_eq!(delivered(&files.0.borrow(), mails), mails);
    assert_eq!(fetch(&files, mails).expect("nothing fails"), 0, "all are there");
}

#[test]
fn no_power_cut_leaves_a_mail_in_part_twice_or_lost() {
    (0..500).for_each(check_seed);
}

#[test]
fn planted_bugs_of_deliveries_are_noticed() {
    for bug in RecoveryBug::ALL {
        let fails = |seed: &u64| {
            with_recovery_bug(bug, || catch_unwind(AssertUnwindSafe(|| check_seed(*seed))).is_err())
        };
        let seed = (0..200).find(fails);
        println!("note: {bug:?} was noticed by seed {seed:?}");
        assert!(seed.is_some(), "nothing noticed {bug:?}");
    }
}
