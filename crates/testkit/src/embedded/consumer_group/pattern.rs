//! Topic patterns: the part of RE2 that topic subscriptions use, matched against whole names.
//!
//! Literals, `.`, classes, groups, alternatives, `*`, `+`, `?`, `^`, `$` and escapes. What RE2 refuses
//! (look-around, back references) is refused; what is left out (counted repeats, flags) is refused as well, which
//! a test notices at once.

#[derive(Clone, Debug)]
enum Node {
    /// Characters by ranges, or all but those.
    Class(Vec<(char, char)>, bool),
    Any,
    /// `^` and `$`: always true at their ends, and names have no others.
    Edge,
    Group(Vec<Vec<Node>>),
    /// At least this many, once only.
    Repeat(Box<Node>, bool, bool),
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: String,
    alternatives: Vec<Vec<Node>>,
}

impl Pattern {
    /// `None` when it is not valid.
    pub fn new(text: &str) -> Option<Pattern> {
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        let alternatives = alternatives(&chars, &mut at)?;
        (at == chars.len()).then(|| Pattern { text: text.to_owned(), alternatives })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, name: &str) -> bool {
        let chars: Vec<char> = name.chars().collect();
        any(&self.alternatives, &chars, &mut |rest| rest.is_empty())
    }
}

fn alternatives(chars: &[char], at: &mut usize) -> Option<Vec<Vec<Node>>> {
    let mut all = vec![Vec::new()];
    while let Some(next) = chars.get(*at).copied() {
        match next {
            ')' => return Some(all),
            '|' => {
                *at += 1;
                all.push(Vec::new());
                continue;
            }
            _ => {}
        }
        let mut node = atom(chars, at)?;
        while let Some(sign) = chars.get(*at).filter(|sign| matches!(sign, '*' | '+' | '?')) {
            node = Node::Repeat(Box::new(node), *sign == '+', *sign == '?');
            *at += 1;
        }
        all.last_mut()?.push(node);
    }
    Some(all)
}

fn atom(chars: &[char], at: &mut usize) -> Option<Node> {
    let next = chars.get(*at).copied()?;
    *at += 1;
    let one = |c: char| Some(Node::Class(vec![(c, c)], false));
    match next {
        '.' => Some(Node::Any),
        '^' | '$' => Some(Node::Edge),
        '*' | '+' | '?' | '{' | '}' => None,
        '\\' => {
            let escaped = chars.get(*at).copied()?;
            *at += 1;
            match escaped {
                'd' => Some(Node::Class(vec![('0', '9')], false)),
                'w' => Some(Node::Class(vec![('0', '9'), ('a', 'z'), ('A', 'Z'), ('_', '_')], false)),
                c if c.is_ascii_alphanumeric() => None,
                c => one(c),
            }
        }
        '(' => {
            if chars.get(*at) == Some(&'?') {
                // Only the group that does not capture.
                if chars.get(at.checked_add(1)?) != Some(&':') {
                    return None;
                }
                *at += 2;
            }
            let inner = alternatives(chars, at)?;
            if chars.get(*at) != Some(&')') {
                return None;
            }
            *at += 1;
            Some(Node::Group(inner))
        }
        '[' => class(chars, at),
        c => one(c),
    }
}

fn class(chars: &[char], at: &mut usize) -> Option<Node> {
    let negated = chars.get(*at) == Some(&'^');
    if negated {
        *at += 1;
    }
    let mut ranges = Vec::new();
    loop {
        let from = chars.get(*at).copied()?;
        *at += 1;
        if from == ']' && !ranges.is_empty() {
            return Some(Node::Class(ranges, negated));
        }
        let ends = chars.get(*at) == Some(&'-') && chars.get(at.checked_add(1)?).is_some_and(|c| *c != ']');
        if ends {
            *at += 1;
            let to = chars.get(*at).copied()?;
            *at += 1;
            ranges.push((from, to));
        } else {
            ranges.push((from, from));
        }
    }
}

/// Whether one of the alternatives leads, with what it leaves over, to the goal.
fn any(alternatives: &[Vec<Node>], name: &[char], goal: &mut dyn FnMut(&[char]) -> bool) -> bool {
    alternatives.iter().any(|nodes| all(nodes, name, goal))
}

fn all(nodes: &[Node], name: &[char], goal: &mut dyn FnMut(&[char]) -> bool) -> bool {
    let Some((node, more)) = nodes.split_first() else { return goal(name) };
    step(node, name, &mut |rest| all(more, rest, goal))
}

fn step(node: &Node, name: &[char], goal: &mut dyn FnMut(&[char]) -> bool) -> bool {
    match node {
        Node::Edge => goal(name),
        Node::Any => name.split_first().is_some_and(|(_, rest)| goal(rest)),
        Node::Class(ranges, negated) => name.split_first().is_some_and(|(c, rest)| {
            (ranges.iter().any(|(from, to)| (from..=to).contains(&c)) != *negated) && goal(rest)
        }),
        Node::Group(alternatives) => any(alternatives, name, goal),
        Node::Repeat(inner, needed, once) => {
            if !needed && goal(name) {
                return true;
            }
            step(inner, name, &mut |rest| {
                // An empty round would go round for ever.
                if rest.len() == name.len() || *once {
                    return goal(rest);
                }
                let again = Node::Repeat(inner.clone(), false, false);
                step(&again, rest, goal)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn a_pattern_matches_whole_names() {
        for (pattern, hits, misses) in [
            ("orders", vec!["orders"], vec!["orders1", "my-orders", ""]),
            ("orders-.*", vec!["orders-", "orders-eu"], vec!["orders", "x-orders-"]),
            ("(a|b)+c?", vec!["a", "ab", "bac"], vec!["c", "acc", ""]),
            ("[a-c]x[^0-9]", vec!["axy", "cx-"], vec!["dxy", "ax1"]),
            ("^t\\.\\d$", vec!["t.1"], vec!["tx1", "t.x"]),
            ("(x*)*", vec!["", "xxx"], vec!["y"]),
        ] {
            let compiled = Pattern::new(pattern).unwrap();
            assert!(hits.iter().all(|name| compiled.matches(name)), "{pattern}");
            assert!(!misses.iter().any(|name| compiled.matches(name)), "{pattern}");
        }
    }

    #[test]
    fn what_re2_refuses_is_refused() {
        for pattern in ["t[", "(?=x)y", "(a", "a)", "*a", "(a)\\1"] {
            assert!(Pattern::new(pattern).is_none(), "{pattern}");
        }
    }
}
