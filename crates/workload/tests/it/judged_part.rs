//! Runs with a judged part: storage that freezes within it, outside it, or across its end.

use crate::frozen::{FaultPlan, SECOND, plan, run};
use workload::{
    database::{
        measure::sample::Sample,
        plan::{LoadPlan, setup::Setup},
        results::{RunResults, VolumeResults},
    },
    meter::{IoTally, VolumeRole},
    verdict::{RunVerdict, judged_part::JudgedPart, limits::Measure},
};

/// 12 seconds of load; the fourth to the eighth are judged.
fn middle(frozen_s: Option<(u32, u32)>) -> (RunResults, RunVerdict) {
    let mut plan = plan(LoadPlan::Mailboxes { count: 100, iops_each: 1.0 }, 12);
    plan.judged = JudgedPart::Middle { seconds: 4 };
    let faults = FaultPlan {
        frozen_after: frozen_s.map(|(from, _)| from * SECOND),
        thawed_after: frozen_s.map(|(_, until)| until * SECOND),
        ..FaultPlan::default()
    };
    let (results, verdict) = run(plan, faults);
    assert_eq!(results.failures, []);
    (results, verdict)
}

fn log(results: &RunResults) -> &VolumeResults {
    results.in_role(VolumeRole::Log).next().expect("one volume has logs")
}

fn longest_sampled_ms(results: &RunResults) -> f64 {
    results.samples.iter().map(|sample| sample.volumes[1].write.max_ns).max().expect("samples") as f64 / 1e6
}

#[test]
fn only_the_judged_part_is_counted_and_only_once() {
    for frozen_s in [None, Some((1, 3)), Some((7, 10))] {
        let (results, _) = middle(frozen_s);
        assert!((3.9..4.1).contains(&results.measured_s), "{}", results.measured_s);
        assert!((11.9..12.1).contains(&results.load_s), "{}", results.load_s);
        assert_eq!((results.samples.len(), results.judged_samples().len()), (12, 4));
        for (index, volume) in results.volumes.iter().enumerate() {
            let of = |sample: &Sample| sample.volumes[index];
            let sampled = |of: fn(&workload::meter::IoTallies) -> IoTally| {
                results.judged_samples().iter().map(|sample| of(&sample.volumes[index]).count).sum::<u64>()
            };
            let in_samples = sampled(|tallies| tallies.read) + sampled(|tallies| tallies.write);
            let counted = volume.tallies.read.count + volume.tallies.write.count;
            // Operations that ended after the part are in later samples.
            assert_eq!(counted, in_samples + volume.tallies.late, "{frozen_s:?}, {}", volume.volume);
            let in_all: u64 = results.samples.iter().map(|sample| of(sample).write.count).sum();
            assert!(in_all > volume.tallies.write.count, "the rest was sampled, too");
        }
        let operations: u64 = results.operations.iter().map(|operation| operation.count).sum();
        let sampled: u64 = results.judged_samples().iter().map(|sample| sample.operations.count).sum();
        // Counted by their intended start: operations that waited for the freeze to end were due before.
        match frozen_s {
            Some((7, 10)) => assert!(operations > sampled + 20, "{operations}, {sampled}"),
            _ => assert!(operations.abs_diff(sampled) <= 8, "{operations}, {sampled}"),
        }
    }
}

#[test]
fn a_freeze_outside_the_judged_part_is_charted_and_not_judged() {
    for frozen_s in [(1, 3), (9, 11)] {
        let (results, verdict) = middle(Some(frozen_s));
        assert!(log(&results).write.max_ms.unwrap() < 1_000.0, "{frozen_s:?}");
        assert!(log(&results).write_worst_window_ms.unwrap() < 50.0, "{frozen_s:?}");
        assert!(results.all_operations.max_ms.unwrap() < 1_000.0, "{frozen_s:?}");
        assert!(longest_sampled_ms(&results) > 1_500.0, "{frozen_s:?}");
        // Four seconds are short for a held rate; it may miss the target.
        let broken: Vec<_> = verdict.broken().map(|row| row.measure).collect();
        assert!(broken.iter().all(|measure| *measure == Measure::AchievedPercentOfTarget), "{broken:?}");
    }
}

#[test]
fn a_freeze_across_the_end_of_the_judged_part_is_judged_with_its_full_latency() {
    let (results, _) = middle(Some((7, 10)));
    let write = &log(&results).write;
    assert!((2_500.0..3_500.0).contains(&write.max_ms.unwrap()), "{write:?}");
    assert!(log(&results).write_worst_window_ms >= write.average_ms);
    let calm = middle(None).0;
    assert!(log(&results).write_worst_window_ms > log(&calm).write_worst_window_ms);
    assert!(results.all_operations.max_ms.unwrap() > 2_500.0);
}

#[test]
fn a_report_names_the_judged_part_and_the_differences_to_its_set_up() {
    let mut plan = plan(LoadPlan::Mailboxes { count: 100, iops_each: 0.5 }, 20);
    let setup = Setup::load("continuous-access").unwrap();
    plan.judged = setup.judged().scaled(setup.duration_s.value, plan.duration_s);
    plan.setup = Some(Box::new(setup));
    let (results, verdict) = run(plan, FaultPlan::default());
    let document = workload::database::document::document(&results, &verdict);
    let text = report::text::render(&document, report::text::TextOptions { width: 100, colour: false });
    assert_eq!(document.verdict.unwrap().class, "Smoke test, 10 s judged of 20 s measured");
    for wanted in
        ["the middle 10 s: from 5 s to 15 s", "Measured: 20 s instead of 8 h", "Set-up continuous-access"]
    {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(wanted), "{wanted:?} in {text}");
    }
}
