//! LIST_META_CONTEXT and SET_META_CONTEXT.
use super::client::*;

const LIST: u32 = 9;
const SET: u32 = 10;

fn context(number: u32, id: u32) -> Vec<u8> {
    let found = [&id.to_be_bytes()[..], b"base:allocation"].concat();
    [option_reply(number, 4, &found), option_reply(number, 1, &[])].concat()
}

fn structured() -> Client {
    let mut client = Client::new();
    client.send(&option(8, &[]));
    client.heard();
    client
}

#[test]
fn contexts_need_structured_replies() {
    for number in [LIST, SET] {
        let mut client = Client::new();
        client.send(&option(number, &context_query("disk", &[])));
        assert_eq!(option_error(number, &client.sent()).0, 3);
        client.send(&option(11, &[]));
        client.heard();
        client.send(&option(number, &context_query("disk", &["base:allocation"])));
        assert_eq!(client.sent(), context(number, if number == SET { 1 } else { 0 }));
    }
}

#[test]
fn a_list_has_what_matches() {
    let mut client = structured();
    for (queries, found) in [
        (&[][..], true),
        (&["base:"], true),
        (&["base:allocation"], true),
        (&["base:", "base:allocation", "base:"], true),
        (&["qemu:", "base:allocation"], true),
        (&["base:other"], false),
        (&["qemu:dirty-bitmap"], false),
        (&["base"], false),
        (&[""], false),
    ] {
        client.send(&option(LIST, &context_query("disk", queries)));
        let expected = if found { context(LIST, 0) } else { option_reply(LIST, 1, &[]) };
        assert_eq!(client.sent(), expected, "{queries:?}");
    }
}

#[test]
fn only_a_name_selects() {
    for (queries, found) in [
        (&[][..], false),
        (&["base:"], false),
        (&["base:allocation"], true),
        (&["x-a:b", "base:allocation", "base:allocation"], true),
        (&["base:allocations"], false),
    ] {
        let mut client = structured();
        client.send(&option(SET, &context_query("disk", queries)));
        let expected = if found { context(SET, 1) } else { option_reply(SET, 1, &[]) };
        assert_eq!(client.sent(), expected, "{queries:?}");
        assert_eq!(has_status(&mut client, "disk"), found, "{queries:?}");
    }
}

/// Goes, and asks for a block status.
fn has_status(client: &mut Client, name: &str) -> bool {
    client.send(&option(7, &question(name, &[])));
    client.heard();
    client.opened(Ok(export()));
    client.heard();
    client.send(&request(Headers::Structured, 0, 7, 1, 0, 512));
    match &client.heard()[..] {
        [Heard::Ask(..)] => true,
        [Heard::Sent(reply)] => {
            assert_eq!(error(Headers::Structured, reply, 1, 0).0, 22);
            false
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_context_is_for_the_export_that_was_named() {
    let query = option(SET, &context_query("disk", &["base:allocation"]));
    let mut client = structured();
    client.send(&query);
    client.heard();
    assert!(!has_status(&mut client, "disk:stage.2"));
}

/// Also by a query that fails.
#[test]
fn a_later_query_replaces_an_earlier_one() {
    let query = option(SET, &context_query("disk", &["base:allocation"]));
    for later in [context_query("disk", &[]), context_query("other", &["base:allocation"]), vec![1]]
    {
        let mut client = structured();
        client.send(&[&query[..], &option(SET, &later)].concat());
        client.heard();
        assert!(!has_status(&mut client, "disk"), "{later:?}");
    }
    let mut client = structured();
    let list = option(LIST, &context_query("disk", &["base:"]));
    client.send(&[query, list].concat());
    client.heard();
    assert!(has_status(&mut client, "disk"), "a list changes nothing");
}

#[test]
fn lengths_that_do_not_agree_are_invalid() {
    let right = context_query("disk", &["base:", "base:allocation"]);
    let mut client = structured();
    for number in [LIST, SET] {
        for len in 0..right.len() {
            client.send(&option(number, &right[..len]));
            assert_eq!(option_error(number, &client.sent()).0, 3, "{len} bytes");
        }
        client.send(&option(number, &[&right[..], &[0]].concat()));
        assert_eq!(option_error(number, &client.sent()).0, 3);
        let many = [sized(b"disk"), u32::MAX.to_be_bytes().to_vec()].concat();
        client.send(&option(number, &many));
        assert_eq!(option_error(number, &client.sent()).0, 3);
    }
}
