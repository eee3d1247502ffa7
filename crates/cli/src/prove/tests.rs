//! Every command that docs/seeds.md prints is accepted as it stands. Only the paths are imagined, with enough
//! room, and the memory of a server.

use super::*;
use crate::{
    arguments::{Arguments, Verb},
    console::in_options,
};
use clap::Parser;
use runs::{
    layout::RunLocations,
    location::{DriveFacts, FolderFacts, LocationFacts, RunLocation},
    sizing::Memory,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use world::ByteCount;

const PAGE: &str = include_str!("../../../../docs/seeds.md");
/// Each path has a filesystem of this size to itself, on a drive taken to be flash: what writes most.
const ROOM: ByteCount = ByteCount::gib(100 << 10);
const MEMORY: ByteCount = ByteCount::gib(64);

#[test]
fn every_published_test_is_accepted_as_it_is_printed() {
    let commands: Vec<&str> = PAGE.lines().filter_map(|line| line.strip_prefix("$ spindle ")).collect();
    assert!(commands.len() >= 20, "the page shows {} commands", commands.len());
    let refused = commands.iter().filter_map(|words| {
        let refusal = planned(words).err()?;
        Some(format!("`spindle {words}`: {refusal}"))
    });
    let refused: Vec<String> = refused.collect();
    assert!(refused.is_empty(), "docs/seeds.md prints what is refused:\n{}", refused.join("\n"));
}

#[test]
fn a_printed_command_with_too_small_an_allowance_would_be_seen() {
    let said = planned("prove /mnt/db --setup equallogic --allow-writes 2TB").expect_err("refused");
    assert!(said.to_string().contains("would be written in 2 h; if the storage may wear"), "{said}");
    let swept = "prove /mnt/db --setup eva8000 --sweep threads=10,30 --allow-writes 1.5TB";
    let said = planned(swept).expect_err("refused");
    assert!(said.to_string().contains("by the 2 runs together"), "{said}");
}

#[test]
fn a_sweep_that_moves_no_file_is_refused() {
    let refused = |words| in_options(&planned(words).expect_err("refused").to_string()).into_owned();
    assert_eq!(
        refused("prove /mnt/a /mnt/b --sweep volumes=1,2 --size 1GiB"),
        "--sweep volumes=1,2 compares nothing: 1 database and logs lie in the same places with both; add \
         databases with --databases or --groups, at least one for each volume"
    );
    assert_eq!(
        refused(
            "prove /mnt/a --logs /mnt/log --sweep layouts=together,half-the-volumes,one-volume --size 1GiB"
        ),
        "--sweep layouts=half-the-volumes,one-volume compares nothing: 1 database and logs lie in the same \
         places with both; add paths, databases or groups, or leave out one-volume"
    );
    assert_eq!(planned("prove /mnt/a /mnt/b --databases 2 --sweep volumes=1,2 --size 1GiB"), Ok(()));
}

/// Plans a command as [`prove_in`] does, on imagined locations.
fn planned(words: &str) -> Result<(), Refusal> {
    let words = ["spindle"].into_iter().chain(words.split(' '));
    let verb = Arguments::try_parse_from(words).map_err(|error| Refusal::new(error.to_string(), ""))?.verb;
    let Verb::Prove(arguments) = verb else { panic!("{verb:?} is not prove") };
    real::run(0, RealOptions::plain(true), async move |world| {
        let (request, setup) = setup::filled_in(&request_of(&arguments))?;
        let profile = planning::profile(&request)?;
        let survey =
            StorageSurvey::imagined(locations(&request), Memory { total: MEMORY, available: MEMORY });
        match &request.sweep {
            Some(sweep) => {
                let (profile, setup) = (&profile, setup.as_ref());
                let request = SweepRequest { request: &request, sweep, profile, setup };
                series::plan_all(&world, request, &survey, Path::new("night")).map(drop)
            }
            None => plan_run(&world, &request, profile, setup, &survey, StartState::AsFound).map(drop),
        }
    })
}

fn locations(request: &RunRequest) -> RunLocations {
    let default = [PathBuf::from("/mnt/spindle-data")];
    let databases = if request.paths.is_empty() { &default[..] } else { &request.paths };
    let all = databases
        .iter()
        .chain(&request.logs)
        .map(|path| RunLocation { given: path.clone(), facts: LocationFacts::Folder(roomy_folder(path)) });
    let all: Vec<RunLocation> = all.collect();
    RunLocations {
        databases: (0..databases.len()).collect(),
        logs: (databases.len()..all.len()).collect(),
        all,
    }
}

/// An empty folder on a filesystem of its own.
fn roomy_folder(path: &Path) -> FolderFacts {
    FolderFacts {
        canonical: path.to_owned(),
        exists: true,
        filesystem: "ext4".to_owned(),
        mount_point: path.to_owned(),
        source: format!("/dev{}", path.display()),
        total: ROOM,
        free: ROOM,
        read_only: false,
        writable: true,
        foreign: Vec::new(),
        manifest: None,
        manifest_damage: None,
        made: BTreeMap::new(),
        drive: DriveFacts { name: Some("sda".to_owned()), ..DriveFacts::default() },
    }
}
