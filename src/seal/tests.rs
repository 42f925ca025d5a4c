//! Keys, slots of keyrings, and what opens with which key.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::base::{Error, SeededEntropy};

const PATH: &str = "/db/KEYRING";
const FILE: FileIdentity = FileIdentity { kind: *b"test", database: 7, owner: 3, number: 9 };

fn seeded(encryption: Encryption) -> Encryption {
    encryption.simulated(Arc::new(SeededEntropy::new(5)))
}

fn cheap(phrase: &str) -> Encryption {
    let cost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 2 };
    seeded(Encryption::passphrase(phrase).passphrase_cost(cost))
}

fn slot_of(encryption: &Encryption) -> Vec<u8> {
    let master = MasterKey::new(encryption, &encryption.random).unwrap();
    Slot::encode(1, 4, &master, &encryption.new_contents(), &encryption.random).unwrap()
}

fn whole(bytes: &[u8]) -> Box<Slot> {
    match Slot::decode(1, bytes) {
        SlotState::Whole(slot) => slot,
        other => panic!("{other:?}"),
    }
}

/// A vault that does what a key service would, to be seen through.
#[derive(Debug)]
struct Xor(u8);

impl Vault for Xor {
    fn wrap_key(&self, secret: &[u8; 32]) -> Result<Vec<u8>, VaultError> {
        Ok([self.0].into_iter().chain(secret.iter().map(|byte| byte ^ self.0)).collect())
    }

    fn unwrap_key(&self, wrapped: &[u8]) -> Result<[u8; 32], VaultError> {
        let failed = || VaultError::Failed("too short".to_owned());
        let (mark, rest) = wrapped.split_first().ok_or_else(failed)?;
        if *mark != self.0 {
            return Err(VaultError::WrongKey);
        }
        let bytes: Vec<u8> = rest.iter().map(|byte| byte ^ self.0).collect();
        bytes.try_into().map_err(|_| failed())
    }
}

#[test]
fn a_slot_opens_with_its_key_and_with_no_other() {
    let vault = |number| seeded(Encryption::vault(Arc::new(Xor(number))));
    let right = [seeded(Encryption::key([1; 32])), cheap("one"), vault(1)];
    let wrong = [seeded(Encryption::key([2; 32])), cheap("two"), vault(2)];
    for (index, encryption) in right.iter().enumerate() {
        let bytes = slot_of(encryption);
        let slot = whole(&bytes);
        assert_eq!(slot.generation, 4);
        let (_, contents) = slot.open(encryption, Path::new(PATH)).unwrap();
        assert_eq!((contents.current, contents.numbers()), (1, vec![1]));
        for other in right.iter().enumerate().filter(|(other, _)| *other != index) {
            let error = slot.open(other.1, Path::new(PATH)).unwrap_err();
            assert!(matches!(error, Error::WrongKey { .. }), "{error}");
        }
        let error = slot.open(&wrong[index], Path::new(PATH)).unwrap_err();
        assert!(matches!(error, Error::WrongKey { .. }), "{error}");
    }
}

#[test]
fn a_vault_that_fails_is_told_from_a_wrong_key() {
    #[derive(Debug)]
    struct Away;
    impl Vault for Away {
        fn wrap_key(&self, _: &[u8; 32]) -> Result<Vec<u8>, VaultError> {
            Err(VaultError::Failed("nobody answers".to_owned()))
        }
        fn unwrap_key(&self, _: &[u8]) -> Result<[u8; 32], VaultError> {
            Err(VaultError::Failed("nobody answers".to_owned()))
        }
    }
    let bytes = slot_of(&seeded(Encryption::vault(Arc::new(Xor(1)))));
    let away = Encryption::vault(Arc::new(Away));
    let error = whole(&bytes).open(&away, Path::new(PATH)).unwrap_err();
    assert!(matches!(error, Error::VaultFailed { .. }), "{error}");
    assert!(matches!(MasterKey::new(&away, &away.random), Err(Error::VaultFailed { .. })));
}

#[test]
fn every_flip_in_a_slot_is_found() {
    let encryption = seeded(Encryption::key([1; 32]));
    let bytes = slot_of(&encryption);
    for index in (0..400).chain((400..SLOT_SIZE).step_by(251)) {
        let mut flipped = bytes.clone();
        flipped[index] ^= 1 << (index % 8);
        assert!(!matches!(Slot::decode(1, &flipped), SlotState::Whole(_)), "byte {index}");
    }
    assert!(matches!(Slot::decode(0, &bytes), SlotState::Damaged(_)), "in the other's place");
}

/// Where a slot says what its passphrase costs: memory, passes, lanes.
const COST_AT: [usize; 3] = [52, 56, 60];

/// A slot whose checksum was made right again.
fn forged(bytes: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut forged = bytes.to_vec();
    change(&mut forged);
    envelope::with_checksum(&mut forged, 1);
    forged
}

/// Before it is known who wrote it, a keyring says how much work it takes to find out.
#[test]
fn a_forged_cost_takes_neither_memory_nor_time_without_end() {
    let bytes = slot_of(&cheap("one"));
    let gib = 1 << 20;
    for cost in [[4 * gib, 1, 1], [u32::MAX; 3], [gib, 17, 1], [64, 1025, 1], [64, 1, 65]] {
        let forged = forged(&bytes, |slot| {
            for (at, number) in COST_AT.into_iter().zip(cost) {
                slot[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
        });
        assert!(matches!(Slot::decode(1, &forged), SlotState::Damaged(_)), "{cost:?}");
    }
}

/// No length that a slot has leads out of it, or to more memory than it takes itself.
#[test]
fn forged_lengths_are_damage() {
    let bytes = slot_of(&seeded(Encryption::key([1; 32])));
    for at in [112, 116] {
        for len in [SLOT_SIZE as u32, (16 << 10) + 1, u32::MAX, u32::MAX - 120] {
            let forged =
                forged(&bytes, |slot| slot[at..at + 4].copy_from_slice(&len.to_le_bytes()));
            let opened = match Slot::decode(1, &forged) {
                SlotState::Whole(slot) => slot.open(&Encryption::key([1; 32]), Path::new(PATH)),
                SlotState::Damaged(_) => continue,
                SlotState::Unknown(version) => panic!("version {version}"),
            };
            assert!(opened.unwrap_err().is_corruption(), "{len} at {at}");
        }
    }
}

/// Whoever changes a slot can make its checksum right again.
#[test]
fn a_forged_slot_is_damage_or_a_wrong_key() {
    let encryption = seeded(Encryption::key([1; 32]));
    let bytes = slot_of(&encryption);
    for index in (16..300).filter(|index| !(16..24).contains(index)) {
        let forged = forged(&bytes, |slot| slot[index] ^= 1);
        match Slot::decode(1, &forged) {
            SlotState::Whole(slot) => match slot.open(&encryption, Path::new(PATH)) {
                // Behind what is sealed are zeros that nobody looks at.
                Ok(_) => assert!(index >= 120 + 4 + 34 + SEAL_LEN, "byte {index}"),
                Err(error) => {
                    let is_either =
                        matches!(error, Error::WrongKey { .. } | Error::Corruption { .. });
                    assert!(is_either, "byte {index}: {error}");
                }
            },
            SlotState::Damaged(_) => {}
            SlotState::Unknown(_) => panic!("byte {index}"),
        }
    }
}

#[test]
fn a_message_opens_with_its_file_s_key_at_its_place_only() {
    let encryption = seeded(Encryption::key([1; 32]));
    let keyring = encryption.keyring(encryption.new_contents());
    let key = keyring.key_for_new(&FILE);
    let mut sealed = b"a message".to_vec();
    key.seal_tail(b"here", &mut sealed, 0);
    assert_eq!(sealed.len(), 9 + SEAL_LEN);
    assert_eq!(key.open_sealed(b"here", &mut sealed.clone()), Some(&b"a message"[..]));
    assert_eq!(key.open_sealed(b"there", &mut sealed.clone()), None);
    for other in [
        FileIdentity { kind: *b"tset", ..FILE },
        FileIdentity { database: 8, ..FILE },
        FileIdentity { owner: 4, ..FILE },
        FileIdentity { number: 10, ..FILE },
    ] {
        let key = keyring.key_for_new(&other);
        assert_eq!(key.open_sealed(b"here", &mut sealed.clone()), None, "{other:?}");
    }
    for index in 0..sealed.len() {
        for bit in 0..8 {
            let mut flipped = sealed.clone();
            flipped[index] ^= 1 << bit;
            assert_eq!(key.open_sealed(b"here", &mut flipped), None, "bit {bit} of {index}");
        }
        assert_eq!(key.open_sealed(b"here", &mut sealed[..index].to_vec()), None);
    }
    // Another database has another key of the same number for the same file.
    let other = encryption.keyring(encryption.new_contents());
    assert_eq!(other.key_for_new(&FILE).open_sealed(b"here", &mut sealed.clone()), None);
}

#[test]
fn files_keep_their_key_when_there_is_a_new_one() {
    let encryption = seeded(Encryption::key([1; 32]));
    let keyring = Arc::new(encryption.keyring(encryption.new_contents()));
    let old = keyring.key_for_new(&FILE);
    let mut sealed = b"a message".to_vec();
    old.seal_tail(b"", &mut sealed, 0);
    keyring.replace(keyring.with_new_key().unwrap());
    let new = keyring.key_for_new(&FILE);
    assert_eq!((old.id(), new.id()), (1, 2));
    assert_eq!(new.open_sealed(b"", &mut sealed.clone()), None);
    let found = |number| Keyring::of_found(Some(&keyring), number, &FILE, Path::new("f"));
    assert!(found(1).unwrap().unwrap().open_sealed(b"", &mut sealed.clone()).is_some());
    keyring.replace(keyring.with_current_key_only());
    assert!(found(1).unwrap_err().is_corruption());
    assert!(found(0).unwrap_err().is_corruption(), "a file that is not sealed");
    let without = Keyring::of_found(None, 2, &FILE, Path::new("f"));
    assert!(matches!(without, Err(Error::KeyNeeded { .. })));
    assert!(Keyring::of_found(None, 0, &FILE, Path::new("f")).unwrap().is_none());
}

#[test]
fn what_is_left_of_a_header_says_which_key_its_file_has() {
    let encryption = seeded(Encryption::key([1; 32]));
    let keyring = Arc::new(encryption.keyring(encryption.new_contents()));
    keyring.replace(keyring.with_new_key().unwrap());
    let of = |left: &[u32]| {
        let left = left.iter().copied();
        Keyring::of_damaged(Some(&keyring), left, &FILE).map(|key| key.id())
    };
    assert_eq!(of(&[version_field(1)]), Some(1));
    assert_eq!(of(&[u32::MAX, version_field(1)]), Some(1));
    // No field, none that is one, a file that is not sealed, a key that is not there.
    for nothing in [&[][..], &[0xFF_FFFF], &[version_field(0)], &[version_field(9)]] {
        assert_eq!(of(nothing), Some(2), "{nothing:?}");
    }
    assert!(Keyring::of_damaged(None, [version_field(1)], &FILE).is_none());
}

#[test]
#[should_panic(expected = "B1")]
fn a_nonce_that_comes_twice_is_noticed() {
    let encryption = seeded(Encryption::key([1; 32]));
    let key = encryption.keyring(encryption.new_contents()).key_for_new(&FILE);
    let nonce = key.draw_nonce();
    let _same_message_twice = [key.seal(&nonce, b"", &mut [1]), key.seal(&nonce, b"", &mut [1])];
    let _another = key.seal(&nonce, b"", &mut [2]);
}

#[test]
fn nothing_that_is_shown_has_a_secret() {
    let secret = [0xA5; 32];
    let shown = |text: String| {
        assert!(
            !text.contains("165") && !text.contains("a5") && !text.contains("hunter2"),
            "{text}"
        );
    };
    let encryption = Encryption::key(secret);
    shown(format!("{encryption:?} {:?}", Encryption::passphrase("hunter2")));
    let master = MasterKey { secret: secret::Secret::take(&mut secret.clone()), ..master() };
    shown(format!("{:?}", master.secret));
    let keyring = encryption.keyring(encryption.new_contents());
    shown(format!("{keyring:?}"));
}

fn master() -> MasterKey {
    let encryption = seeded(Encryption::key([1; 32]));
    MasterKey::new(&encryption, &encryption.random).unwrap()
}

#[test]
fn costs_that_cannot_be_are_refused() {
    for (memory_kib, passes, lanes) in
        [(0, 1, 1), (64, 0, 1), (64, 1, 0), (64, 1, 64), (u32::MAX, 1, 1), (1 << 20, 17, 1)]
    {
        let cost = PassphraseCost { memory_kib, passes, lanes };
        let encryption = Encryption::passphrase("p").passphrase_cost(cost);
        let error = MasterKey::new(&encryption, &encryption.random).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{cost:?}");
    }
    assert!(PassphraseCost::default().is_sane());
    assert!(PassphraseCost::default().memory_kib >= 64 << 10);
}

/// Slots and a message that another program has made, after `docs/format/sealing.md`: their
/// bytes but for zeros behind them, and the checksum, which is put in.
const SLOT_OF_KEY: &str = "\
    4c495448454b45590000000000000000010000000100000004000000000000001011121314151617\
    18191a1b1c1d1e1f01000000000000000000000000000000202122232425262728292a2b2c2d2e2f\
    3bb8ad0bf6b4dd00e628929bc7d6fd53bfa14ae820a7df3e01bfd7904162d75f0000000070000000\
    6cd0110b211fd2c8a84b6667303d89c46ca2700a85c8deb96ac87b7baea10346f35842873a69a1b5\
    f470a496cb7ea09996020c8afee9b1443809eb958d6da9075d588a9fd05766673031323334353637\
    38393a3b3c3d3e3f40414243444546473d015f82f1c3c4090b6bf57e26c945e1";
const SLOT_OF_PASSPHRASE: &str = "\
    4c495448454b45590000000000000000010000000100000004000000000000001011121314151617\
    18191a1b1c1d1e1f02000000400000000200000002000000202122232425262728292a2b2c2d2e2f\
    700c82133fba6461748c8badd411521922201cb9465b09cb6165944cd874146f0000000070000000\
    1be84e0b92c47c0b3508c1cc51e2d31eb2c03e989234c0a28ccd82ef266c81393ee8a8ccf4492813\
    3dd2e68772634a8b214b02f2beca4e29886f83d70d8405f1eb3a530550f862fd3031323334353637\
    38393a3b3c3d3e3f40414243444546478e4ebd74456ad64c49d10be368f7bbe3";
const SLOT_OF_XAES: &str = "\
    4c495448454b45590000000000000000010000000200000004000000000000001011121314151617\
    18191a1b1c1d1e1f01000000000000000000000000000000202122232425262728292a2b2c2d2e2f\
    3bb8ad0bf6b4dd00e628929bc7d6fd53bfa14ae820a7df3e01bfd7904162d75f0000000070000000\
    3dc85609b339fb180836b74d6314732bdd4b48cbeb17d4bf23eb5fea4f314047d219468dba4c975a\
    4ce72c697bc5d6c33898c72f9e52f8ac5f3d78111af410bcd0cd5b9f95ebdbf23031323334353637\
    38393a3b3c3d3e3f404142434445464712454bd17bba220f93063ddb37253df7";
const MESSAGE_OF_XAES: &str = "\
    f94450d08e3bd994d5303132333435363738393a3b3c3d3e3f404142434445464793161505e45a62\
    55d7476ee034350d12";
const SEALED_MESSAGE: &str = "\
    a585a0590f0f644f52303132333435363738393a3b3c3d3e3f4041424344454647dba2b37ba1a6d8\
    9523536a03fd476270";

fn bytes_of(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        digits.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn recorded_slot(digits: &str) -> Box<Slot> {
    let mut bytes = bytes_of(digits);
    bytes.resize(SLOT_SIZE, 0);
    whole(&forged(&bytes, |_| {}))
}

/// A sequence that goes on from 0x30 byte by byte.
#[derive(Debug, Default)]
struct Counting(std::sync::atomic::AtomicU64);

impl crate::base::Entropy for Counting {
    fn next_u64(&self) -> u64 {
        let first = 0x30 + self.0.fetch_add(8, std::sync::atomic::Ordering::Relaxed);
        u64::from_le_bytes(std::array::from_fn(|index| first as u8 + index as u8))
    }
}

fn recorded_keyring() -> Keyring {
    keyring_in(SLOT_OF_KEY)
}

fn keyring_in(slot: &str) -> Keyring {
    let encryption = Encryption::key(std::array::from_fn(|index| index as u8));
    let opened = recorded_slot(slot).open(&encryption, Path::new(PATH));
    encryption.simulated(Arc::new(Counting::default())).keyring(opened.unwrap().1)
}

/// The key of a file of which other parts have recorded bytes: nonces that it draws go on from 0x30
/// byte by byte.
pub(crate) fn recorded_key() -> Arc<FileKey> {
    recorded_keyring().key_for_new(&FILE)
}

/// The same key, with nonces from the kernel: of as many messages as one likes.
pub(crate) fn drawing_key() -> Arc<FileKey> {
    let encryption = Encryption::key([1; 32]);
    encryption.keyring(recorded_keyring().contents()).key_for_new(&FILE)
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let passphrase = Encryption::passphrase("correct horse");
    let (_, contents) =
        recorded_slot(SLOT_OF_PASSPHRASE).open(&passphrase, Path::new(PATH)).unwrap();
    assert_eq!((contents.current, contents.numbers()), (3, vec![1, 3]));
    assert_eq!(*contents.keys[&1].bytes(), [0x51; 32]);
    let contents = recorded_keyring().contents();
    assert_eq!((contents.current, contents.numbers()), (3, vec![1, 3]));
    assert_eq!(*contents.keys[&3].bytes(), [0x53; 32]);
    let mut sealed = b"a message".to_vec();
    recorded_key().seal_tail(b"here", &mut sealed, 0);
    assert_eq!(sealed, bytes_of(SEALED_MESSAGE));
    assert_eq!(recorded_slot(SLOT_OF_KEY).cipher(), Cipher::XChaCha20Poly1305);
    assert_eq!(recorded_slot(SLOT_OF_XAES).cipher(), Cipher::XAes256Gcm);
    let mut sealed = b"a message".to_vec();
    keyring_in(SLOT_OF_XAES).key_for_new(&FILE).seal_tail(b"here", &mut sealed, 0);
    assert_eq!(sealed, bytes_of(MESSAGE_OF_XAES));
}

/// A keyring says its cipher; whoever opens it asks for none, or for another.
#[test]
fn a_database_keeps_its_cipher() {
    for cipher in [Cipher::XChaCha20Poly1305, Cipher::XAes256Gcm] {
        let made = seeded(Encryption::key([1; 32])).cipher(cipher);
        let slot = whole(&slot_of(&made));
        assert_eq!(slot.cipher(), cipher);
        for other in [Cipher::XChaCha20Poly1305, Cipher::XAes256Gcm] {
            let opening = seeded(Encryption::key([1; 32])).cipher(other);
            let (master, contents) = slot.open(&opening, Path::new(PATH)).unwrap();
            assert_eq!(contents.cipher, cipher);
            let again = Slot::encode(1, 5, &master, &contents, &opening.random).unwrap();
            assert_eq!(whole(&again).cipher(), cipher);
        }
    }
    let mut unknown = slot_of(&seeded(Encryption::key([1; 32])));
    unknown[20] = 3;
    let found = Slot::decode(1, &forged(&unknown, |_| {}));
    assert!(matches!(found, SlotState::Unknown(_)), "{found:?}");
}
