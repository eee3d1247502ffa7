//! Golden images: the permanent encoding of version 1 of each structure, byte by byte. A change needs a new
//! version, and a new image beside the old one.

use crate::{
    dump::{dump, undump},
    image,
};
use expect_test::expect_file;

#[test]
fn each_structure_is_written_as_its_golden_image() {
    for image in image::all() {
        expect_file![path(image.name)].assert_eq(&dump(&image.bytes));
    }
}

#[test]
fn each_golden_image_is_read_and_encodes_to_itself() {
    for image in image::all() {
        let golden = undump(&expect_file![path(image.name)].data());
        let again = (image.again)(&golden).unwrap_or_else(|refusal| panic!("{}: {refusal}", image.name));
        assert_eq!(dump(&again), dump(&golden), "{}", image.name);
    }
}

#[test]
fn a_dump_is_its_bytes() {
    for length in [0, 1, 16, 33, 4096] {
        let bytes: Vec<u8> =
            (0..length).map(|index| if index % 100 < 50 { 0 } else { index as u8 }).collect();
        assert_eq!(undump(&dump(&bytes)), bytes);
    }
}

fn path(name: &str) -> String {
    format!("{}/tests/it/golden/{name}.hex", env!("CARGO_MANIFEST_DIR"))
}
