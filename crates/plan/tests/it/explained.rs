//! An explanation is the answer's own arithmetic: change a constant, and both change.

use crate::planned::{DELL, planned};
use expect_test::expect;
use plan::{demand::Demand, profile::Profile, rules::Rules};

fn explained(demand: &Demand, id: &str) -> String {
    let one = demand.sheet.find(id).expect("it is derived")[0];
    format!("{} = {} = {} = {}", one.id, one.formula, one.put_in, one.shown())
}

#[test]
fn the_dumpster_is_explained_by_its_formula_and_its_numbers() {
    expect!["DSU = MSR × AMS / 1024 × retained_days + single_item_recovery × MQ + version_logging × MQ = 150 × 75 / 1024 × 14 + 1.2 % × 2,048 + 5.8 % × 2,048 = 297.2 MB"]
        .assert_eq(&explained(&planned(DELL, &[]), "DSU"));
}

#[test]
fn a_constant_that_is_set_changes_answer_and_explanation() {
    let demand = planned(DELL, &["retained_days=30"]);
    expect!["DSU = MSR × AMS / 1024 × retained_days + single_item_recovery × MQ + version_logging × MQ = 150 × 75 / 1024 × 30 + 1.2 % × 2,048 + 5.8 % × 2,048 = 472.9 MB"]
        .assert_eq(&explained(&demand, "DSU"));
    let input = demand.sheet.find("DSU").unwrap()[0]
        .inputs
        .iter()
        .find(|input| input.name == "retained_days")
        .cloned();
    assert_eq!(input.unwrap().source, "given");
}

#[test]
fn a_constant_that_a_file_changes_changes_answer_and_explanation() {
    let own = r#"
        name = "ours"
        title = "Ours"
        based_on = "exchange-2010"
        [[figure]]
        key = "database_overhead"
        value = 35
        source = "our measurement of May"
        confidence = "given"
    "#;
    let profile = Profile::parse(DELL).unwrap();
    let ours = Demand::of(&profile, Rules::parse(own).unwrap()).unwrap();
    expect!["DBS = total(NU × MBU) × (1 + database_overhead) / 1024 = 5,000 × 2,356 × (1 + 35 %) / 1024 = 15,531 GB"]
        .assert_eq(&explained(&ours, "DBS"));
    assert_eq!(ours.needs.databases, 16);
}

/// Changing any figure changes every number whose formula names it, and what those numbers go into; and no other.
#[test]
fn every_figure_moves_the_numbers_that_name_it_and_no_others() {
    let text = DELL.replace("copies = 2", "copies = 2\nlink = \"OC3\"\nraid = \"raid10\"");
    let always = ["link_rtt=30", "link_loss=0.1%", "offline_maintenance_databases=1", "recovery_databases=1"];
    let before = planned(&text, &always);
    for figure in before.sheet.rules().figures() {
        let value = if figure.value * 1.5 + 1.0 <= figure.most {
            figure.value * 1.5 + 1.0
        } else {
            figure.value / 2.0
        };
        let value = if figure.whole { value.floor() } else { value };
        let assignment = format!("{}={value}{}", figure.key, figure.unit);
        let mut set = always.to_vec();
        set.push(&assignment);
        let after = planned(&text, &set);
        let mut moved: Vec<&str> = vec![&figure.key];
        for (old, new) in before.sheet.all().iter().zip(after.sheet.all()) {
            let names_one_that_moved = new.inputs.iter().any(|input| moved.contains(&input.name.as_str()));
            if old.value != new.value || old.put_in != new.put_in {
                assert!(names_one_that_moved, "{} moved with {}, and does not name it", new.id, figure.key);
                moved.push(new.id);
            }
            let named = new.inputs.iter().any(|input| input.name == figure.key);
            assert!(!named || old.put_in != new.put_in, "{} names {}, and did not move", new.id, figure.key);
        }
    }
}

#[test]
fn no_name_is_both_a_figure_and_a_number() {
    let demand = planned(DELL, &[]);
    for one in demand.sheet.all() {
        assert!(
            demand.sheet.rules().figure(one.id).is_none() && demand.sheet.rules().curve(one.id).is_none()
        );
        assert!(!one.source.is_empty() && !one.title.is_empty() && !one.activity.is_empty(), "{}", one.id);
    }
}

#[test]
fn tiers_are_added_up_and_each_explained() {
    let text = format!(
        "{DELL}\n[[tier]]\nname = \"light\"\nusers = 1000\nquota = \"500MB\"\nmessages = 50\nclients = [\"mobile\"]\n"
    );
    let demand = planned(&text, &[]);
    assert_eq!(demand.sheet.find("DSU").unwrap().len(), 2);
    expect!["DBIOP = total(NU × IOPU × CON × CLF) × (1 + iops_headroom) = (5,000 × 0.15 × 100 % × 1 + 1,000 × 0.05 × 100 % × 1.25) × (1 + 20 %) = 975 IOPS"]
        .assert_eq(&explained(&demand, "DBIOP"));
}
