//! Records: written by real runs, read whole, cut short, damaged, and made up.

use expect_test::expect;
use std::{panic, path::PathBuf};
use workload::{
    database::{
        document::document,
        record::{RecordHeader, RecordReader, RecordWriter, RecoveredRun, RunEnd, RunEvent, RunRecordError},
        results::{HostFacts, RunResults, search::SearchResults},
    },
    meter::VolumeRole,
    verdict::{RunVerdict, VerdictOutcome},
};
use world::crc32c::crc32c;

/// A record of version 1, as a run of two groups wrote it: it is to be read for ever.
fn golden() -> Vec<u8> {
    golden_of("version-1.run")
}

/// A record of version 2, of a search.
fn golden_search() -> Vec<u8> {
    golden_of("version-2.run")
}

fn golden_of(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden").join(name);
    world::real::host_files::read(&path).expect("the golden record")
}

fn read(bytes: &[u8]) -> Result<RecoveredRun, RunRecordError> {
    let mut reader = RecordReader::new();
    for line in bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|&byte| byte == b'\n') {
        reader.line(line)?;
    }
    reader.finish()
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|&byte| byte == b'\n').collect()
}

/// The line with `from` replaced by `to` and its sum made right again.
fn forged(line: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = str::from_utf8(line).unwrap();
    let body = text[text.find("\"line\"").unwrap()..].trim_end().replacen(from, to, 1);
    summed(&body)
}

fn summed(body: &str) -> Vec<u8> {
    format!("{{\"sum\":\"{:08x}\",{body}\n", crc32c(&[body.as_bytes()])).into_bytes()
}

/// Bytes of all lines up to the first that holds `what`, without it.
fn until(bytes: &[u8], what: &str) -> Vec<u8> {
    let before = lines(bytes).into_iter().take_while(|line| !str::from_utf8(line).unwrap().contains(what));
    before.flatten().copied().collect()
}

fn io_per_volume(results: &RunResults) -> Vec<(VolumeRole, u64, u64)> {
    let of = results.volumes.iter();
    of.map(|volume| (volume.role, volume.tallies.read.count, volume.tallies.write.count)).collect()
}

#[test]
fn the_golden_record_gives_the_results_of_its_run() {
    let recovered = read(&golden()).unwrap();
    assert_eq!(recovered.results.cut_off, None);
    assert_eq!(RunVerdict::of(&recovered.results).unwrap().answer, VerdictOutcome::Pass);
    expect![[r#"
        spindle 0.1.0 measured 6.0 s: 4988 IOPS, 6 samples, 4 verified, [(Database, 22322, 7606), (Log, 0, 9027)]
        spindle prove --size 64MiB --duration 6s --groups 2 --report r
        None"#]].assert_eq(&in_short(&recovered));
}

fn in_short(recovered: &RecoveredRun) -> String {
    let results = &recovered.results;
    format!(
        "{} measured {:.1} s: {:.0} IOPS, {} samples, {} verified, {:?}\n{}\n{:?}",
        recovered.header.generator,
        results.measured_s,
        results.achieved_iops(),
        results.samples.len(),
        results.verified.len(),
        io_per_volume(results),
        recovered.header.command,
        results.cut_off,
    )
}

#[test]
fn entries_before_the_end_agree_with_the_measurements() {
    let golden = golden();
    let whole = read(&golden).unwrap().results;
    let cut = read(&until(&golden, "\"ended\":")).unwrap().results;
    // Everything was measured and verified; only the last line is missing.
    assert_eq!(io_per_volume(&cut), io_per_volume(&whole));
    assert_eq!(cut.samples, whole.samples);
    assert_eq!(cut.transactions, whole.transactions);
    assert_eq!(cut.engine, whole.engine);
    assert_eq!(cut.thread_cpu_s, whole.thread_cpu_s);
    assert_eq!(cut.late, whole.late);
    assert_eq!(cut.fill, whole.fill);
    assert_eq!(cut.verified, whole.verified);
    assert_eq!(cut.measured_s, whole.measured_s);
    for (cut, whole) in cut.databases.iter().zip(&whole.databases) {
        assert_eq!((&cut.name, cut.bytes_before), (&whole.name, whole.bytes_before));
    }
    for (cut, whole) in cut.volumes.iter().zip(&whole.volumes) {
        assert_eq!(cut.write.average_ms, whole.write.average_ms);
        assert_eq!(cut.write_worst_window_ms, whole.write_worst_window_ms);
        let (p99, exact) = (cut.write.p99_ms.unwrap(), whole.write.p99_ms.unwrap());
        assert!(p99 >= exact * 0.999 && p99 <= exact * 1.018, "{exact} ms became {p99}");
    }
    assert_eq!(RunVerdict::of(&cut).unwrap().answer, VerdictOutcome::Incomplete);
}

#[test]
fn a_record_may_be_cut_anywhere_and_gives_its_recorded_part() {
    let golden = golden();
    let first = golden.iter().position(|&byte| byte == b'\n').unwrap();
    let mut measured_s = 0.0;
    let ends = (first..golden.len()).step_by(1009).chain([golden.len() - 2]);
    for end in ends {
        let recovered = read(&golden[..end]).unwrap_or_else(|error| panic!("cut at {end}: {error}"));
        let results = &recovered.results;
        assert!(results.cut_off.is_some(), "cut at {end}");
        assert!(results.measured_s >= measured_s, "cut at {end}: what was known is known");
        measured_s = results.measured_s;
        let verdict = RunVerdict::of(results).unwrap();
        assert_eq!(verdict.answer, VerdictOutcome::Incomplete);
        report::html::render(&document(results, &verdict));
    }
    assert!(measured_s > 3.0, "{measured_s}");
    assert_eq!(read(&golden[..first - 1]).unwrap_err(), RunRecordError::NotARecord);
    assert_eq!(read(b"").unwrap_err(), RunRecordError::NotARecord);
}

#[test]
fn groups_that_were_cut_at_different_moments_are_compared_at_the_same() {
    let golden = golden();
    // The first line with four seconds is one group's; the other group has recorded two.
    let at = golden.windows(19).position(|window| window == b"\"measured_s\":4.0012").unwrap();
    let end = at + golden[at..].iter().position(|&byte| byte == b'\n').unwrap() + 1;
    let results = read(&golden[..end]).unwrap().results;
    assert!((1.9..2.1).contains(&results.measured_s), "{}", results.measured_s);
    assert_eq!(results.samples.len(), 2, "both groups' first two seconds");
}

#[test]
fn half_a_line_at_the_end_is_left_out_and_damage_before_it_is_not() {
    let golden = golden();
    let lines = lines(&golden);
    let mut torn: Vec<u8> = lines[..20].concat();
    let known = read(&torn).unwrap();
    torn.extend(&lines[20][..lines[20].len() / 2]);
    torn.extend([0; 700]);
    torn.extend(b"\n\0\n");
    let recovered = read(&torn).unwrap();
    assert_eq!(recovered.results, known.results);
    assert!(recovered.dropped_bytes > 700, "{}", recovered.dropped_bytes);

    let damaged = |index: usize, line: &[u8]| {
        let mut lines = lines.clone();
        lines[index] = line;
        read(&lines.concat()).unwrap_err().to_string()
    };
    let mut flipped = lines[9].to_vec();
    flipped[60] ^= 1;
    assert_eq!(damaged(9, &flipped), "line 10 is damaged: its checksum is wrong");
    assert_eq!(damaged(9, b""), "line 10 is damaged: it is number 10, not 9");
    assert_eq!(damaged(9, b"hello\n"), "line 10 is damaged: it is no line of a run record");
    assert_eq!(damaged(9, lines[8]), "line 10 is damaged: it is number 8, not 9");
    assert_eq!(damaged(0, lines[1]), "it is no run record");
    let backwards = forged(lines[20], "\"at_s\":", "\"at_s\":-");
    assert!(damaged(20, &backwards).starts_with("line 21 is damaged: its time, -"));
}

#[test]
fn other_files_and_later_versions_are_told_apart() {
    let golden = golden();
    let first = lines(&golden)[0];
    let refused = |line: &[u8]| read(line).unwrap_err().to_string();
    assert_eq!(
        refused(&forged(first, "\"version\":1", "\"version\":3")),
        "it is a run record of version 3, this program knows versions 1 to 2"
    );
    // Nothing else of a later version must be readable.
    let later =
        summed("\"line\":0,\"at_s\":0,\"entry\":{\"header\":{\"format\":\"spindle-run\",\"version\":7}}}");
    assert_eq!(refused(&later), "it is a run record of version 7, this program knows versions 1 to 2");
    assert_eq!(refused(&forged(first, "spindle-run", "spindle-cow")), "it is no run record");
    assert_eq!(refused(b"{\"format\": \"spindle-report\"}"), "it is no run record");
    assert_eq!(refused(&[0; 4096]), "it is no run record");
    assert_eq!(
        refused(&forged(first, "\"groups\":2", "\"groups\":4000000000")),
        "line 1 is damaged: storage groups: 4000000000 is out of range, 1 to 64 make sense"
    );
}

#[test]
fn a_figure_missing_in_an_old_profile_is_as_built_in() {
    let golden = golden();
    let start = "\"page_bytes\":{";
    let text = str::from_utf8(lines(&golden)[0]).unwrap();
    let from = text.find(start).unwrap();
    let figure = &text[from..from + text[from..].find("},").unwrap() + 2];
    let plan = read(&forged(lines(&golden)[0], figure, "")).unwrap().header.plan;
    assert_eq!(plan, read(&golden).unwrap().header.plan);
}

/// Every number of every line made absurd in turn, its sum made right: an error or a report, no panic.
#[test]
fn absurd_numbers_end_in_a_report_or_in_one_line() {
    let kinds = ["made", "measuring", "measured", "host", "verified", "filled", "ended"];
    make_absurd(&golden(), &kinds, 500);
    make_absurd(&golden_search(), &["creating", "trial", "holding", "kernel"], 100);
}

fn make_absurd(golden: &[u8], kinds: &[&str], tried_min: usize) {
    let lines = lines(golden);
    let mut tried = 0;
    for kind in kinds {
        let found = |line: &&[u8]| str::from_utf8(line).unwrap().contains(&format!("\"entry\":{{\"{kind}\""));
        let index = lines.iter().position(found).unwrap_or_else(|| panic!("no line of {kind}"));
        let text = str::from_utf8(lines[index]).unwrap();
        let body = text[text.find("\"line\"").unwrap()..].trim_end();
        let numbers = numbers(body);
        let step = (numbers.len() / 25).max(1);
        for &(start, end) in numbers.iter().step_by(step) {
            for absurd in ["0", "-1", "18446744073709551615", "1e300", "1e999", "null", "4294967295", "\"x\""]
            {
                let forged = summed(&format!("{}{absurd}{}", &body[..start], &body[end..]));
                let mut bytes = lines[..index].concat();
                bytes.extend(forged);
                bytes.extend(lines[index + 1..].concat());
                let shown = format!("{kind} {absurd} for {}", &body[start.saturating_sub(30)..end]);
                let outcome = panic::catch_unwind(|| {
                    if let Ok(recovered) = read(&bytes)
                        && let Ok(verdict) = RunVerdict::of(&recovered.results)
                    {
                        document(&recovered.results, &verdict);
                    }
                });
                assert!(outcome.is_ok(), "{shown}");
                tried += 1;
            }
        }
    }
    assert!(tried > tried_min, "{tried}");
}

/// Positions of the numbers in a JSON text.
fn numbers(text: &str) -> Vec<(usize, usize)> {
    let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let mut found = Vec::new();
    let (mut in_string, mut index) = (false, 0);
    let bytes = text.as_bytes();
    while index < bytes.len() {
        match bytes[index] {
            b'"' => in_string = !in_string,
            b'\\' => index += 1,
            byte if !in_string && (byte.is_ascii_digit() || byte == b'-') => {
                let end = (index..bytes.len()).find(|&at| !is_part(bytes[at])).unwrap_or(bytes.len());
                found.push((index, end));
                index = end;
                continue;
            }
            _ => {}
        }
        index += 1;
    }
    found
}

#[test]
fn a_crash_in_a_search_costs_none_of_its_trials() {
    let golden = golden_search();
    let whole = read(&golden).unwrap().results;
    let found = whole.search.as_ref().unwrap();
    assert!(found.trials.len() > 3 && found.held.is_some(), "{found:?}");
    let cut = read(&until(&golden, "\"ended\":")).unwrap().results;
    let told = SearchResults { sessions_max: 0, ..found.clone() };
    assert_eq!(cut.search, Some(told), "the record has everything except the number of sessions");
    let telling = until(&golden, "\"ended\":");
    let telling = lines(&telling)
        .into_iter()
        .flat_map(|line| forged(line, "{\"trial\":{\"bound\"", "{\"trial\":{\"sessions_max\":51,\"bound\""));
    let told = read(&telling.collect::<Vec<u8>>()).unwrap().results;
    assert_eq!(told.search.map(|found| found.sessions_max), Some(51), "later programs tell them");
    assert_eq!(cut.kernel, whole.kernel);
    assert_eq!(cut.target_iops(), whole.target_iops());

    let third = read(&until(&golden, "\"number\":4,")).unwrap().results;
    let found_then = third.search.as_ref().unwrap();
    assert_eq!(found_then.trials, found.trials[..3]);
    assert_eq!(found_then.held, None);
    let document = document(&third, &RunVerdict::of(&third).unwrap());
    let sections: Vec<&str> = document.sections.iter().map(|section| section.title.as_str()).collect();
    assert!(sections.contains(&"Search for the most within limits"), "{sections:?}");

    let held = read(&until(&golden, "\"measuring\":")).unwrap().results;
    let first_hold = found.trials.iter().find(|trial| trial.holds).unwrap();
    assert_eq!(held.search.unwrap().held, Some(first_hold.level), "a crash in a hold knows what was held");
}

#[test]
fn a_crash_during_creation_reports_its_progress() {
    let results = read(&until(&golden_search(), "\"made\":")).unwrap().results;
    let document = document(&results, &RunVerdict::of(&results).unwrap());
    let texts: Vec<&str> = document.findings.iter().map(|finding| finding.text.as_str()).collect();
    expect!["The record ends without the end of the run, 1 s after it began, in phase create, 16.1 MiB of 32.0 MiB (50 %): Spindle or the machine died, or the run is still going. The report covers what was recorded until then, and the files were not verified; percentiles are up to 1.6 % too long."].assert_eq(texts[0]);
}

#[test]
fn results_round_trip_exactly() {
    let results = super::ami_2008::ami_2008();
    let header = RecordHeader::new(
        results.plan.clone(),
        results.generator.clone(),
        "spindle prove".to_owned(),
        HostFacts::default(),
        results.began_unix_s,
    );
    let mut writer = RecordWriter::new();
    let mut bytes = writer.line(0.0, RunEvent::Header(Box::new(header)));
    let ended = RunEnd { results: results.clone(), remarks: Vec::new() };
    bytes.extend(writer.line(3.0, RunEvent::Ended(Box::new(ended))));
    assert_eq!(read(&bytes).unwrap().results, results);
    bytes.extend(writer.line(4.0, RunEvent::Failed("no space".to_owned())));
    assert_eq!(read(&bytes).unwrap_err().to_string(), "line 3 is damaged: it comes after the end of the run");
}

#[test]
fn a_failed_run_names_its_error() {
    let golden = golden();
    let mut bytes = until(&golden, "\"verified\":");
    let number = lines(&bytes).len();
    bytes.extend(summed(&format!(
        "\"line\":{number},\"at_s\":900.0,\"entry\":{{\"failed\":\"no storage space\"}}}}"
    )));
    let results = read(&bytes).unwrap().results;
    let document = document(&results, &RunVerdict::of(&results).unwrap());
    let texts: Vec<&str> = document.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert_eq!(
        texts[0],
        "The run ended without results after 15 min, in phase measure: no storage space. The report covers \
         what was recorded until then, and the files were not verified."
    );
}
