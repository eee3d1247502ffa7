//! Compression of real databases' pages by a real compressor.

use crate::real_run::{folders, plan, run_here};
use std::fs;
use workload::database::plan::LoadPlan;

/// Pages that compress below this many bytes were never used.
const NEVER_USED_MAX: usize = 400;

/// Compressed bytes / bytes of the used pages of a database.
fn ratio(compressible_percent: u64) -> f64 {
    let folder = folders(1);
    let mut plan = plan("exchange-2010", LoadPlan::Threads { per_group: 2 });
    plan.duration_s = 1;
    plan.fill_s_max = 1;
    plan.profile.set("compressible_percent", &compressible_percent.to_string()).unwrap();
    plan.profile.check().unwrap();
    let page_bytes = plan.profile.page_size().bytes();
    let results = run_here(plan, folder.path());
    assert_eq!(results.failures, []);
    #[allow(clippy::disallowed_methods, reason = "an outsider looks at the file")]
    let image = fs::read(folder.path().join("0/priv1.edb")).unwrap();
    let compressed = image.chunks(page_bytes).map(|page| (page.len(), lz4_flex::compress(page).len()));
    let used: Vec<_> = compressed.filter(|(_, compressed)| *compressed > NEVER_USED_MAX).collect();
    assert!(used.len() > 100, "{} pages of 32 KiB are used", used.len());
    let (all, compressed) = used.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    compressed as f64 / all as f64
}

#[test]
fn pages_compress_by_the_requested_share() {
    // Free space in pages always compresses: measured, a ninth of 32 KiB.
    let [plain, half, most] = [0, 50, 90].map(ratio);
    assert!((0.80..1.0).contains(&plain), "{plain}");
    // A body is 93 % of a record of 1000 bytes; the rest stays.
    for (ratio, percent) in [(half, 50.0), (most, 90.0)] {
        let (of_plain, wanted) = (ratio / plain, 1.0 - 0.93 * percent / 100.0);
        assert!((of_plain - wanted).abs() < 0.04, "{percent} %: {of_plain} of {plain}, not {wanted}");
    }
}
