//! Effects of power cuts and host crashes on a drive.
//!
//! A power cut keeps any subset of the data that was not stable: of every completed volatile write and of
//! every write in flight, each atomic unit (a sector, unless the drive promises more) survives or not,
//! independently. So a write may be torn anywhere, writes may land in any order, and a unit written twice may
//! hold the newest version, an older one, or the stable one before. Each cut draws its own survival rate,
//! from keeping nothing to keeping all.

use super::{
    drive::{Operation, SimDrive},
    medium::DriveState,
};
use crate::{Buffer, Stability};
use std::sync::Arc;

/// Survival rates of a cut or a crash, in percent of the units at risk.
const SURVIVAL_RATES: [f64; 5] = [0.0, 20.0, 50.0, 80.0, 100.0];

impl SimDrive {
    /// Completes the operations an ended incarnation left in flight; their callers are gone.
    pub(super) fn complete_all(&self) {
        let mut state = self.shared.state.borrow_mut();
        for operation in state.take_under_way() {
            if let Operation::Write { at, from, stability } = operation {
                state.accept(at, from, stability == Stability::Stable);
            }
        }
    }

    /// Loses power and comes back.
    pub(super) fn cut_power(&self) {
        let mut state = self.shared.state.borrow_mut();
        let percent = state.survival_rate();
        for write in std::mem::take(&mut state.unsynced) {
            let percent = if write.is_stable { 100.0 } else { percent };
            for (at, bytes) in state.survivors(write.at, &write.from, percent) {
                state.durable.write(at, &bytes);
            }
        }
        let mut under_way = state.writes_under_way();
        while !under_way.is_empty() {
            let pick = state.losses.below(under_way.len() as u64) as usize;
            let (at, from) = under_way.swap_remove(pick);
            for (at, bytes) in state.survivors(at, &from, percent) {
                state.durable.write(at, &bytes);
            }
        }
        state.visible = state.durable.clone();
        self.note_losses(&state);
    }

    /// The host crashes and the drive keeps its cache: writes in flight land in part.
    pub(super) fn lose_host(&self) {
        let mut state = self.shared.state.borrow_mut();
        let percent = state.survival_rate();
        let mut under_way = state.writes_under_way();
        while !under_way.is_empty() {
            let pick = state.losses.below(under_way.len() as u64) as usize;
            let (at, from) = under_way.swap_remove(pick);
            state.accept_in_part(at, &from, percent);
        }
        self.note_losses(&state);
    }

    fn note_losses(&self, state: &DriveState) {
        self.shared.executor.note(state.statistics.units_lost);
        self.shared.executor.note(state.statistics.units_kept);
    }
}

impl DriveState {
    fn survival_rate(&mut self) -> f64 {
        SURVIVAL_RATES[self.losses.below(SURVIVAL_RATES.len() as u64) as usize]
    }

    fn writes_under_way(&mut self) -> Vec<(u64, Vec<Arc<Buffer>>)> {
        let writes = self.take_under_way().into_iter().filter_map(|operation| match operation {
            Operation::Write { at, from, .. } => Some((at, from)),
            _ => None,
        });
        writes.collect()
    }

    /// Accepts a write into the cache, each atomic unit with this probability.
    pub(super) fn accept_in_part(&mut self, at: u64, from: &[Arc<Buffer>], percent: f64) {
        for (at, bytes) in self.survivors(at, from, percent) {
            self.accept(at, vec![Arc::new(Buffer::copy_of(&bytes))], false);
        }
    }

    /// The parts of a write that survive, each atomic unit with this probability; adjacent ones are joined.
    fn survivors(&mut self, at: u64, from: &[Arc<Buffer>], percent: f64) -> Vec<(u64, Vec<u8>)> {
        let unit_bytes = self.options.atomic_unit.0;
        let sector = self.options.sector as usize;
        let mut survivors: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut decided = None;
        let mut at = at;
        for bytes in from.iter().flat_map(|buffer| buffer.chunks_exact(sector)) {
            let unit = at / unit_bytes;
            let survives = match decided {
                Some((known, survives)) if known == unit => survives,
                _ => self.decide(percent),
            };
            decided = Some((unit, survives));
            if survives {
                match survivors.last_mut() {
                    Some((start, run)) if *start + run.len() as u64 == at => run.extend_from_slice(bytes),
                    _ => survivors.push((at, bytes.to_vec())),
                }
            }
            at += sector as u64;
        }
        survivors
    }

    fn decide(&mut self, percent: f64) -> bool {
        let survives = self.losses.percent(percent);
        if survives {
            self.statistics.units_kept += 1
        } else {
            self.statistics.units_lost += 1
        }
        survives
    }
}
