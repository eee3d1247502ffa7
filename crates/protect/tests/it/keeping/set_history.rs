//! Random histories of a set: up and down times, crashes at any step, clocks that jump, rounds that fail.

use super::{seeds, set_model::SetModel};

const YEAR_S: i64 = 366 * 86_400;

/// One history.
pub fn check_seed(seed: u64) {
    let mut model = SetModel::new(seed);
    for _ in 0..6 + model.random.below(10) {
        live(&mut model);
    }
}

fn live(model: &mut SetModel) {
    match model.random.below(10) {
        0..6 => {
            // Each second stretch is without trouble, so that its pace can be judged.
            let is_quiet = model.random.percent(60.0);
            model.death_percent = if is_quiet { 0.0 } else { 0.5 };
            model.failure_percent = if is_quiet { 0.0 } else { 20.0 };
            up(model);
        }
        6 => {
            let longest_s = [3_600, 86_400, 14 * 86_400][model.random.below(3) as usize];
            model.elapsed_s += model.random.below(longest_s);
            model.kill();
        }
        7 => model.civil_offset_s += model.random.below(4 * 3_600) as i64 - 2 * 3_600,
        8 => {
            let ahead_s = model.random.below(2 * 17 * YEAR_S as u64) as i64 - YEAR_S;
            model.civil_offset_s += ahead_s;
            up(model);
            model.civil_offset_s -= ahead_s;
        }
        _ => {
            if model.random.percent(30.0) {
                model.remove_by_person();
            } else {
                jump_about(model);
            }
        }
    }
}

/// The runner looks some times; if it dies, it is started again.
fn up(model: &mut SetModel) {
    let step_s = model.shortest_s() / (2 + model.random.below(6));
    for _ in 0..10 + model.random.below(50) {
        model.elapsed_s += step_s;
        let lived = if model.is_running() { model.look() } else { model.start() };
        if lived.is_err() {
            model.kill();
            continue;
        }
        // A slot that is filled late, the next one, and a clock that was set back meanwhile.
        let silence_s = model.elapsed_s - model.quiet_since_s;
        let patience_s = model.shortest_s() * 11 / 10 + 3_600;
        let most_s = if model.shortest_s() < 3_600 { model.shortest_s() * 3 } else { 2 * patience_s };
        assert!(silence_s <= most_s + 2 * step_s, "nothing was made for {silence_s} s");
    }
}

/// The clock jumps to and fro at every look.
fn jump_about(model: &mut SetModel) {
    for _ in 0..10 {
        let ahead_s = model.random.below(100 * model.shortest_s()) as i64 - 50 * model.shortest_s() as i64;
        model.civil_offset_s += ahead_s;
        model.elapsed_s += model.shortest_s() / 20;
        let lived = if model.is_running() { model.look() } else { model.start() };
        if lived.is_err() {
            model.kill();
        }
    }
}

#[test]
fn whatever_happens_slots_are_filled_once_and_nothing_goes_but_by_name() {
    for seed in seeds(150) {
        check_seed(seed);
    }
}
