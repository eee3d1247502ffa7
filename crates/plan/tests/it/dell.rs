//! The Dell paper's tables 14 to 19 and its example of 5,000 users (Dell 2010 sections 3.3 and 3.4.2), to every value.

use crate::planned::{DELL, check, planned, users};

/// Everything of the paper's own arithmetic, with table 14's 20 % that table 18 forgets.
#[test]
fn for_5000_users_the_formula_gives_13806_gb_in_14_databases() {
    let demand = planned(DELL, &[]);
    check(&demand, &[("NU", "5000"), ("MQ", "2048"), ("MSR", "150"), ("AMS", "75")]);
    check(&demand, &[("WSU", "11"), ("DSU", "297"), ("MBU", "2356"), ("DBS", "13806")]);
    check(&demand, &[("MAXDB", "1024"), ("DBC", "14"), ("IDBS", "986"), ("DVS", "1302")]);
    check(&demand, &[("NL", "30"), ("MSF", "1"), ("NDB", "358"), ("TLC", "10740"), ("LVS", "42")]);
    check(&demand, &[("DBIOP", "900"), ("LIOPS", "378")]);
}

/// Tables 18 and 19 as printed: the example with the overhead of table 14 left out.
#[test]
fn tables_18_and_19_are_what_comes_out_without_the_forgotten_factor() {
    let demand = planned(DELL, &["database_overhead=0%"]);
    check(&demand, &[("WSU", "11"), ("DSU", "297"), ("MBU", "2356"), ("DBS", "11505")]);
    check(&demand, &[("DBC", "12"), ("IDBS", "959"), ("DVS", "1266")]);
    check(&demand, &[("NL", "30"), ("MSF", "1"), ("NDB", "417"), ("TLC", "12510"), ("LVS", "48")]);
    // 15780 in its conclusion are volumes of whole GB; 15768 are its rounded table entries, taken 12 times.
    check(&demand, &[("DVW", "1266"), ("LVW", "49"), ("PROV", "15780")]);
    let rounded = (demand.sheet.get("DVS").round() + demand.sheet.get("LVS").round()) * 12.0;
    assert_eq!(rounded, 15768.0);
    check(&demand, &[("DBIOP", "900")]);
}

#[test]
fn mean_messages_of_table_14_come_out_to_the_second_digit() {
    check(&planned(DELL, &[]), &[("WSU", "10.99"), ("DSU", "297.17"), ("MBU", "2356.15")]);
}

/// Table 15 has no moved mailboxes; table 19 multiplies by 1.1 for them.
#[test]
fn table_15_is_what_comes_out_without_the_moved_mailboxes_of_table_19() {
    let demand = planned(DELL, &["database_overhead=0%", "moved_mailboxes=0%"]);
    check(&demand, &[("TLC", "12510"), ("LVS", "44")]);
}

#[test]
fn a_dumpster_is_57_mb_smaller_by_the_3_percent_of_other_texts() {
    check(&planned(DELL, &["version_logging=3%"]), &[("DSU", "240")]);
}

#[test]
fn message_size_factors_are_those_of_table_15() {
    for (size, factor) in [("75KB", "1.0"), ("76KB", "1.9"), ("150KB", "1.9"), ("151KB", "3.8")] {
        let demand = planned(&DELL.replace("75KB", size), &[]);
        check(&demand, &[("MSF", factor)]);
    }
}

#[test]
fn table_16_asks_a_fifth_more_of_databases_without_copies() {
    let copies = planned(&users("exchange-2010", 5000, "2GB", 150, "copies = 2"), &[]);
    check(&copies, &[("SDBO", "1.0"), ("IOPU", "0.150"), ("DBIOP", "900")]);
    let alone = planned(&users("exchange-2010", 5000, "2GB", 150, "copies = 1"), &[]);
    check(&alone, &[("SDBO", "1.2"), ("IOPU", "0.180"), ("DBIOP", "1080")]);
}

#[test]
fn table_17_asks_for_log_io_by_copies() {
    // ((900 × 0.5 × 0.5) + (900 × (copies − 1) × 0.1)) × 1.2
    for (copies, iops) in [(2, "378"), (3, "486"), (4, "594")] {
        let text = users("exchange-2010", 5000, "2GB", 150, &format!("copies = {copies}"));
        check(&planned(&text, &[]), &[("DBIOP", "900"), ("LIOPS", iops)]);
    }
    // One copy: 1080 × 0.25 × 1.2.
    check(&planned(&users("exchange-2010", 5000, "2GB", 150, ""), &[]), &[("LIOPS", "324")]);
}

#[test]
fn offline_maintenance_takes_110_percent_of_a_volume_and_recovery_a_volume_each() {
    let set = ["offline_maintenance_databases=1", "recovery_databases=2"];
    let demand = planned(DELL, &set);
    // A database may become 1024 GB: × 1.1 × 1.2, and of that × 1.1, and twice.
    check(&demand, &[("DVX", "1351.68"), ("OMS", "1486.85"), ("RDB", "2703.36"), ("RCAP", "4190.21")]);
}

#[test]
fn databases_are_as_large_as_section_3_3_3_lets_them_be_by_mode() {
    let largest = |more: &str, set: &[&str]| {
        planned(&users("exchange-2010", 5000, "2GB", 150, more), set).sheet.get("MAXDB")
    };
    assert_eq!(largest("copies = 2", &[]), 2048.0);
    assert_eq!(largest("copies = 1", &[]), 100.0);
    // 3.2 MB/s for 8 hours; a faster backup allows no more than there may be without one.
    let window = "mode = \"backup-window\"";
    assert_eq!(largest(window, &["backup_rate=3.2MB"]), 90.0);
    assert_eq!(largest(window, &["backup_rate=3.2MB", "backup_window=4h"]), 45.0);
    assert_eq!(largest(window, &[]), 100.0);
}

/// Second-hand: 700 users of 500 MB with 100 messages of 150 KB take 755 MB each, 619 GB in all.
#[test]
fn another_calculators_worked_example_comes_out_the_same() {
    let text = users("exchange-2010", 700, "500MB", 100, "copies = 2").replace("75KB", "150KB");
    check(&planned(&text, &[]), &[("WSU", "14.6"), ("DSU", "240"), ("MBU", "755"), ("DBS", "619")]);
}
