use super::*;
use crate::link::Where;

struct At(Result<&'static str, &'static str>);

impl Whereabouts for At {
    fn find(&self) -> Result<Where, String> {
        let iscsi = self.0.map_err(str::to_owned)?.to_owned();
        Ok(Where { nbd: String::new(), iscsi })
    }
}

fn login(portal: &Portal) -> (u8, [u8; 2], String) {
    let mut stream = TcpStream::connect(portal.address()).expect("it listens");
    let mut request = vec![0; HEAD_LEN];
    request[0] = 0x40 | LOGIN_REQUEST;
    let text = b"InitiatorName=iqn.x\0TargetName=iqn.y\0";
    request[7] = u8::try_from(text.len()).expect("a short one");
    request[16..20].copy_from_slice(&[1, 2, 3, 4]);
    request.extend_from_slice(text);
    request.resize(HEAD_LEN + padded(text.len()), 0);
    stream.write_all(&request).expect("it is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers, and closes");
    assert_eq!(answer.len() % 4, 0, "words are whole");
    assert_eq!(answer[16..20], [1, 2, 3, 4], "it answers this request");
    let data = String::from_utf8_lossy(&answer[HEAD_LEN..]).trim_end_matches('\0').to_owned();
    (answer[0], [answer[36], answer[37]], data)
}

#[test]
fn every_login_is_sent_to_where_the_target_is() {
    let portal = Portal::open(Box::new(At(Ok("10.0.0.7:3260")))).expect("it is open");
    for _ in 0..2 {
        let told = (LOGIN_RESPONSE, MOVED, "TargetAddress=10.0.0.7:3260,1".to_owned());
        assert_eq!(login(&portal), told);
    }
}

#[test]
fn while_nobody_knows_an_initiator_is_asked_to_come_again() {
    for at in [At(Err("no quorum")), At(Ok(""))] {
        let portal = Portal::open(Box::new(at)).expect("it is open");
        assert_eq!(login(&portal), (LOGIN_RESPONSE, UNAVAILABLE, String::new()));
    }
}

#[test]
fn what_is_no_login_ends_only_its_own_connection() {
    let portal = Portal::open(Box::new(At(Ok("10.0.0.7:3260")))).expect("it is open");
    let mut stream = TcpStream::connect(portal.address()).expect("it listens");
    stream.write_all(&[0xff; 512]).expect("it is taken");
    drop(stream);
    assert_eq!(login(&portal).1, MOVED);
}
