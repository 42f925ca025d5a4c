//! What each format makes of its input.

use super::*;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn options(format: InputFormat, key: &str, value: &str) -> RecordOptions {
    RecordOptions {
        format,
        key: (!key.is_empty()).then(|| key.parse().unwrap()),
        value: (!value.is_empty()).then(|| value.parse().unwrap()),
        header: Header::Present,
    }
}

fn read(input: &[u8], options: &RecordOptions) -> Result<Pairs, Failure> {
    let mut records = records(Source::of_bytes(input), options)?;
    let mut pairs = Vec::new();
    while let Some(record) = records.next()? {
        pairs.push((record.key.to_vec(), record.value.to_vec()));
    }
    assert_eq!(records.bytes_read(), input.len() as u64);
    Ok(pairs)
}

fn pairs<const N: usize>(expected: [(&[u8], &[u8]); N]) -> Pairs {
    expected.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn message(result: Result<Pairs, Failure>) -> String {
    let failure = result.unwrap_err();
    assert_eq!(failure.exit_code(), 2);
    failure.message().unwrap()
}

#[test]
fn a_line_is_a_key_and_its_value_what_was_asked_for() {
    let input = b"b\n\xFF\x00\r\n\nlast";
    let read = |value| read(input, &options(InputFormat::Lines, "", value)).unwrap();
    let empty: &[u8] = b"";
    assert_eq!(read(""), pairs([(b"b", empty), (b"\xFF\x00\r", b""), (b"", b""), (b"last", b"")]));
    assert_eq!(read("none"), read(""));
    assert_eq!(read("line-number")[3], (b"last".to_vec(), b"4".to_vec()));
    assert_eq!(read("line")[1], (b"\xFF\x00\r".to_vec(), b"\xFF\x00\r".to_vec()));
}

#[test]
fn lines_have_no_fields() {
    let read = |key, value| read(b"a\n", &options(InputFormat::Lines, key, value));
    assert!(message(read("1", "")).contains("--key"));
    assert!(message(read("", "name")).contains("\"name\""));
}

#[test]
fn csv_keeps_quoted_commas_and_line_ends() {
    let input = b"id,name,note\n1,\"a,b\",\"two\nlines \"\"q\"\"\"\n2,\xFF,\n";
    let read = |key, value| read(input, &options(InputFormat::Csv, key, value)).unwrap();
    assert_eq!(read("", "note"), pairs([(b"1", b"two\nlines \"q\""), (b"2", b"")]));
    assert_eq!(read("name", "none"), pairs([(b"a,b", b""), (b"\xFF", b"")]));
    assert_eq!(read("2", "line-number"), pairs([(b"a,b", b"1"), (b"\xFF", b"2")]));
    assert_eq!(read("id", "")[0].1, b"1,\"a,b\",\"two\nlines \"\"q\"\"\"");
    assert_eq!(read("id", "")[1].1, b"2,\xFF,");
}

#[test]
fn csv_without_a_header_counts_every_record() {
    let mut options = options(InputFormat::Csv, "2", "1");
    options.header = Header::Absent;
    assert_eq!(read(b"a,b\nc,d", &options).unwrap(), pairs([(b"b", b"a"), (b"d", b"c")]));
}

#[test]
fn csv_that_is_broken_is_refused_with_its_line() {
    let read = |input: &[u8]| message(read(input, &options(InputFormat::Csv, "", "")));
    let said = read(b"id,name\n1,a\n2,\"b\n3,c\n4,d\n");
    assert!(said.contains("a quote of the record on line 3 is not closed"), "{said}");
    assert!(read(b"\"id,name\n1,a\n").contains("record on line 1 is not closed"));
    let said = read(b"id,name\n1,\"a\nb\"\n2,b,c\n");
    assert!(said.contains("the record on line 4 has 3 fields, the first one has 2"), "{said}");
    assert!(read(b"id,name\n1\n").contains("the record on line 2 has 1 field, the first one"));
    let mut options = options(InputFormat::Csv, "1", "none");
    options.header = Header::Absent;
    assert!(message(self::read(b"a,b\nc\n", &options)).contains("line 2 has 1 field"));
}

#[test]
fn tsv_fields_are_the_bytes_between_tabs() {
    let input = b"key\tvalue\n\"q\t\\x00\n\xFF\t\ttwo\nno-value";
    let read = |value| read(input, &options(InputFormat::Tsv, "", value));
    assert_eq!(read("").unwrap()[1], (b"\xFF".to_vec(), b"\xFF\t\ttwo".to_vec()));
    assert!(message(read("value")).contains("record 3: field 2 is missing, there are 1"));
    assert!(message(read("nope")).contains("\"key\", \"value\""));
}

#[test]
fn ndjson_fields_become_their_bytes() {
    let input = br#"{"key":"\u00fc","value":{"hex":"ff00"},"n":12345678901234567890123}

 {"n":1.50,"value":null,"key":{"hex":"zz","x":1}}
"#;
    let read = |key, value| read(input, &options(InputFormat::Ndjson, key, value)).unwrap();
    let odd = br#"{"hex":"zz","x":1}"#;
    assert_eq!(read("", "value"), pairs([("ü".as_bytes(), b"\xFF\0"), (odd, b"null")]));
    assert_eq!(read("n", "line-number")[0].0, b"12345678901234567890123");
    assert_eq!(read("n", "none")[1].0, b"1.50");
    assert!(read("n", "")[1].1.starts_with(b"{\"n\":1.50"));
}

#[test]
fn bad_ndjson_names_its_line() {
    let read = |input: &[u8]| read(input, &options(InputFormat::Ndjson, "", "none"));
    assert!(message(read(b"{\"key\":\"a\"}\n{\"key\"")).starts_with("line 2: "));
    assert!(message(read(b"{\"id\":1}")).contains("no field \"key\""));
    assert!(message(read(b"{\"key\":{\"hex\":\"0\"}}")).contains("hexadecimal"));
    assert!(message(read(b"[1]")).starts_with("line 1: "));
    assert!(message(read(b"\xFF")).starts_with("line 1: "));
}

#[test]
fn a_field_named_like_a_keyword_can_be_asked_for() {
    let input = b"key,line\nk,v\n";
    let value = read(input, &options(InputFormat::Csv, "", "field:line")).unwrap();
    assert_eq!(value, pairs([(b"k", b"v")]));
}
