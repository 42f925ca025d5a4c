//! Frames: cut anywhere, broken anywhere.

use super::*;

const LIMITS: FrameLimits =
    FrameLimits { arguments: 100, bulk: 1000, frame: 5000, line: 200, is_unknown: false };

fn words(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

#[test]
fn a_command_is_found_wherever_it_is_cut() {
    let frames: [(&[u8], Vec<Vec<u8>>); 8] = [
        (b"*1\r\n$4\r\nPING\r\n", words(&[b"PING"])),
        (b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$2\r\n\r\n\r\n", words(&[b"SET", b"", b"\r\n"])),
        (b"*2\r\n$3\r\nGET\r\n$5\r\n*1\r\n$\r\n", words(&[b"GET", b"*1\r\n$"])),
        (b"PING\r\n", words(&[b"PING"])),
        (
            b"set  a \"b c\\x41\\n\\\"\" 'd\\'e\\n'\n",
            words(&[b"set", b"a", b"b cA\n\"", b"d'e\\n"]),
        ),
        (b"  PING \t x\r\n", words(&[b"PING", b"x"])),
        (b"\r\n", words(&[])),
        (b"*0\r\n", words(&[])),
    ];
    for (frame, expected) in frames {
        let with_more = [frame, b"*1\r\n$4\r\nPING\r\n"].concat();
        for bytes in [frame, &with_more] {
            let (parsed, args) = parse(bytes, &LIMITS);
            let is_whole = matches!(parsed, Parsed::Command(len) | Parsed::Nothing(len)
                if len == frame.len());
            assert!(is_whole, "{parsed:?} of {}", bytes.escape_ascii());
            assert_eq!(args, expected);
        }
        for first in 0..frame.len() {
            for second in first..frame.len() {
                let mut parser = Parser::default();
                for cut in [first, second] {
                    let parsed = parser.advance(&frame[..cut], &LIMITS);
                    assert!(
                        matches!(parsed, Parsed::Need(need) if need > cut && need <= frame.len()),
                        "{parsed:?} of {}",
                        frame[..cut].escape_ascii()
                    );
                }
                let parsed = parser.advance(frame, &LIMITS);
                assert!(matches!(parsed, Parsed::Command(_) | Parsed::Nothing(_)));
                let found: Vec<_> = parser.args(frame).iter().map(<[u8]>::to_vec).collect();
                assert_eq!(found, expected);
            }
        }
    }
}

#[test]
fn what_is_no_command_or_too_large_is_refused_by_its_head() {
    use FrameError as E;
    let cases: [(&[u8], FrameError); 20] = [
        (b"*101\r\n", E::ArgumentCount),
        (b"*99999999999999999999\r\n", E::ArgumentCount),
        (b"*x\r\n", E::ArgumentCount),
        (b"*\r\n", E::ArgumentCount),
        (b"*+1\r\n", E::ArgumentCount),
        (b"*1\r\n*1\r\n", E::NotABulk(b'*')),
        (b"*1\r\n:1\r\n", E::NotABulk(b':')),
        (b"*1\r\n$-1\r\n", E::BulkLength),
        (b"*1\r\n$1001\r\n", E::BulkLength),
        (b"*1\r\n$9223372036854775807\r\n", E::BulkLength),
        (b"*1\r\n$9223372036854775808\r\n", E::BulkLength),
        (b"*1\r\n$18446744073709551615\r\n", E::BulkLength),
        (b"*1\r\n$1\r\nabc", E::BulkEnd),
        (b"*1\r\n$11111111111111111111111111111111111", E::LengthLine),
        (b"*1\rx", E::LengthLine),
        (b"set a \"b\n", E::Quotes),
        (b"set a \"b\"c\n", E::Quotes),
        (b"POST / HTTP/1.1\r\n", E::Http),
        (b"Host: example.org\r\n", E::Http),
        (&[b'a'; 300], E::Line),
    ];
    for (bytes, expected) in cases {
        let (parsed, _) = parse(bytes, &LIMITS);
        assert_eq!(parsed, Parsed::Error(expected), "{}", bytes.escape_ascii());
    }
    for nothing in [&b"*-1\r\n"[..], b"*0\r\n", b"*-9223372036854775808\r\n"] {
        assert_eq!(parse(nothing, &LIMITS).0, Parsed::Nothing(nothing.len()));
    }
    let unknown = FrameLimits { arguments: 2, bulk: 3, is_unknown: true, ..LIMITS };
    assert_eq!(parse(b"*3\r\n", &unknown).0, Parsed::Error(E::UnknownArgumentCount));
    assert_eq!(parse(b"*1\r\n$4\r\n", &unknown).0, Parsed::Error(E::UnknownBulkLength));
    let six = [
        b"*6\r\n".to_vec(),
        [b"$900\r\n".to_vec(), vec![b'x'; 900], b"\r\n".to_vec()].concat().repeat(6),
    ]
    .concat();
    assert_eq!(parse(&six, &LIMITS).0, Parsed::Error(E::Frame));
}

#[test]
fn changed_bytes_end_in_an_answer_and_take_nothing_in_advance() {
    let frame = b"*3\r\n$3\r\nSET\r\n$5\r\nhello\r\n$5\r\nworld\r\n";
    for at in 0..frame.len() {
        for byte in 0..=255 {
            let mut changed = frame.to_vec();
            changed[at] = byte;
            let mut parser = Parser::default();
            let parsed = parser.advance(&changed, &LIMITS);
            if let Parsed::Command(len) | Parsed::Nothing(len) = parsed {
                assert!(len <= changed.len());
            }
            assert!(parser.places.capacity() <= 64);
        }
    }
}
