//! The page of the format against what is written.

use super::*;

#[test]
fn the_example_of_the_format_page_is_what_is_written() {
    let bench = Bench::new();
    let model = Model::from([(b"k".to_vec(), value("v"))]);
    let record = bench.write_with(&TableOptions::default(), &model, &[(b"m", None)]);
    let file = bench.storage.open(&bench.place.path_of(record.number), OpenMode::ReadOnly).unwrap();
    let mut written = vec![0; record.size as usize];
    file.read_exact_at(&mut written, 0).unwrap();
    let page = include_str!("../../../../../docs/format/table.md");
    let example = page.split("## Example").nth(1).unwrap();
    let lines = example.lines().filter_map(|line| line.strip_prefix("    "));
    let bytes: Vec<u8> = lines
        .flat_map(|line| line.split("    ").next().unwrap_or("").split_whitespace())
        .map_while(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    assert!(bytes == written, "{written:02x?}");
}
