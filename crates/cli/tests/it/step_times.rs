//! `export --step-times`: a line a second about the steps of the server's thread.

use crate::{
    spindle::{Bench, json_of},
    volumes::{connect, while_exported},
};
use std::{fs, time::Duration};
use world::{BlockDevice, Buffer, ByteOffset};

#[test]
fn each_second_of_a_server_is_a_line_with_all_its_steps() {
    for method in [&[][..], &["--plain-io"]] {
        let bench = Bench::new();
        bench.make_file("disk.img", &vec![7; 1 << 20]);
        let arguments = [&["disk.img", "--step-times", "steps.jsonl"], method].concat();
        while_exported(&bench, &arguments, async |world, uri| {
            let client = connect(&world, uri("disk.img")).await;
            for _ in 0..100 {
                client.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
            }
            world.sleep(Duration::from_millis(1200)).await;
        });
        let text = fs::read_to_string(bench.path("steps.jsonl")).unwrap();
        let lines: Vec<_> = text.lines().map(json_of).collect();
        assert!(lines.len() >= 2, "one a second, and one of the rest: {text}");
        let sum = |key: &str| lines.iter().map(|line| line[key].as_f64().unwrap()).sum::<f64>();
        assert!(sum("steps") >= 200.0, "a command takes a step of the connection and one of its own: {text}");
        assert!(sum("seconds") >= 1.2, "{text}");
        for line in &lines {
            assert_eq!(line["limit_us"], 1000.0);
            let figure = |key: &str| line[key].as_f64().unwrap();
            assert!(figure("p999_us") <= figure("longest_us") && figure("at") > 1.7e9, "{line}");
            let tasks = line["tasks"].as_array().unwrap();
            let long: u64 = tasks.iter().map(|task| task["long"].as_u64().unwrap()).sum();
            assert_eq!(line["long"].as_u64(), Some(long), "each long step belongs to a task");
            assert_eq!(long > 0, figure("longest_us") > 1000.0, "{line}");
        }
    }
}

#[test]
fn a_file_that_exists_is_refused_and_one_of_a_refused_server_is_removed() {
    let bench = Bench::new();
    bench.make_file("steps", b"mine");
    bench.make_file("disk.img", &vec![0; 1 << 20]);
    let nbd = format!("unix:{}", bench.path("socket").display());
    let refused = bench.refused(&["export", "disk.img", "--nbd", &nbd, "--step-times", "steps"]);
    assert!(refused.contains("steps") && refused.contains("the name of a new file"), "{refused}");
    let refused = bench.refused(&["export", "none.img", "--nbd", &nbd, "--step-times", "new"]);
    assert!(refused.contains("none.img"), "{refused}");
}
