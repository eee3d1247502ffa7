//! `seeds FOLDER`: writes the initial corpus of each target into a folder of its own, from the examples of
//! the tests.

use fuzz::{
    array, catalogue_bytes, decoder_bytes, decoders, frame_bytes, protocols, record_bytes, site, verify,
};
use std::{env, fs, path::Path};

const SEGMENT_BYTES: usize = 4096;

fn main() {
    let folder = env::args().nth(1).expect("usage: seeds FOLDER");
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = Path::new(&folder).join(target);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(format!("seed-{name}")), bytes).expect("a file");
    };
    for structure in
        ["superblock", "checkpoint", "slot_header", "summary", "record", "location", "row", "node"]
    {
        for image in array::images(structure) {
            write(&format!("array_{structure}"), image.name, &image.bytes);
        }
    }
    for (target, name, bytes) in protocols::seeds() {
        write(target, name, &bytes);
    }
    for (target, name, bytes) in verify::seeds() {
        write(target, &name, &bytes);
    }
    write("site_file", "every-key", site::seed().as_bytes());
    for (name, bytes) in site::document_seeds() {
        write("site_document", name, &bytes);
    }
    for (number, frame) in frame_bytes::examples().iter().enumerate() {
        write("replication_frame", &format!("{:?}-{number}", frame.body.kind()), &frame.encode().concat());
    }
    for (name, record) in record_bytes::examples() {
        write("replication_record", name, &record.encode());
    }
    write("protect_catalogue", "with-sums", &[vec![0], catalogue_bytes::example()].concat());
    write("protect_catalogue", "without-sums", &catalogue_bytes::input());
    let compacted = catalogue_bytes::compacted_example();
    write("protect_catalogue", "compacted-with-sums", &[vec![0], compacted.clone()].concat());
    write("protect_catalogue", "compacted-without-sums", &catalogue_bytes::input_of(&compacted));
    for (name, note) in catalogue_bytes::notes() {
        write("protect_note", name, note.encode().as_bytes());
    }
    for (name, bytes) in decoder_bytes::examples() {
        write("vault_decoders", name, &bytes);
    }
    let made = decoders::sample_files();
    write("maildb_database", "whole", &made.database);
    write("maildb_stamps", "whole", &made.stamps);
    write("maildb_log", "whole", &made.log);
    write("maildb_checkpoint", "whole", &made.checkpoint);
    write("maildb_header", "database", &made.database[..4096]);
    write("maildb_header", "log", &made.log[..SEGMENT_BYTES]);
    for (number, page) in made.database.chunks_exact(4096).enumerate().skip(2) {
        write("maildb_page", &format!("{number}"), &[&[0], page].concat());
    }
    for (number, segment) in made.log.chunks_exact(SEGMENT_BYTES).enumerate().skip(1).take(8) {
        let records = &segment[40..];
        write("maildb_log_record", &format!("{number}"), records);
        write("maildb_log", &format!("records-{number}"), records);
    }
}
