package ipam

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Words of a record. Any other word is a prefix, with the pool that handed it out.
const (
	uidWord       = "uid="
	idWord        = "id="
	abandonedWord = "abandoned="
	releasedWord  = "released=" // the time at which the quarantine began
)

// Record returns the text form of a holding, one line with everything that can't be read from
// the Node itself:
//
//	uid=3f0c… id=hcloud://1234567 10.244.3.0/24@default fd00:10:244:3::/64@v6
//	abandoned=10.244.9.0/24@default released=2026-11-20T22:00:00Z
//
// The name of the Node is missing because it is the key under which the line is stored.
func (h Holding) Record() string {
	words := []string{uidWord + escape(h.Node.UID)}
	if h.Node.ProviderID != "" {
		words = append(words, idWord+escape(h.Node.ProviderID))
	}
	words = append(words, h.texts(h.Prefixes)...)
	if len(h.Abandoned) > 0 {
		words = append(words, abandonedWord+strings.Join(h.texts(h.Abandoned), ","))
	}
	if !h.Released.IsZero() {
		words = append(words, releasedWord+h.Released.UTC().Format(time.RFC3339Nano))
	}
	return strings.Join(words, " ")
}

func (h Holding) texts(prefixes []netip.Prefix) []string {
	var texts []string
	for _, p := range prefixes {
		text := p.String()
		if pool := h.Pools[p]; pool != "" {
			text += "@" + pool
		}
		texts = append(texts, text)
	}
	return texts
}

// Records returns all lines of a name, in the order of the UIDs, by the shard that records them.
func (l *Ledger) Records(name string) (lines [Shards]string) {
	for _, h := range slices.SortedFunc(slices.Values(l.names[name]), compareNodes) {
		for _, shard := range h.shards() {
			if lines[shard] != "" {
				lines[shard] += "\n"
			}
			lines[shard] += h.part(shard).Record()
		}
	}
	return lines
}

// ParseRecords parses the lines stored under a Node's name.
func ParseRecords(name, text string) ([]Holding, error) {
	var holdings []Holding
	for line := range strings.Lines(text) {
		h, err := ParseRecord(name, strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(holdings, func(other Holding) bool {
			return other.Node.UID == h.Node.UID
		}) {
			return nil,
				fmt.Errorf("record of Node %s: two lines for the UID %q: remove one of them", name, h.Node.UID)
		}
		holdings = append(holdings, h)
	}
	if len(holdings) == 0 {
		return nil, fmt.Errorf("record of Node %s: nothing in it: remove the entry", name)
	}
	return holdings, nil
}

// ParseRecord parses a line stored under a Node's name. It accepts the output of Record with
// its words in any order; errors name the word and a remedy.
func ParseRecord(name, line string) (Holding, error) {
	h := Holding{Node: Node{Name: name}, Pools: map[netip.Prefix]string{}}
	var err error
	for _, word := range strings.Fields(line) {
		if err = h.read(word); err != nil {
			break
		}
	}
	switch {
	case err != nil:
	case h.Node.UID == "":
		err = fmt.Errorf("%q has no UID: write %s and the UID of the Node", line, uidWord)
	case len(h.Prefixes) == 0 && len(h.Abandoned) == 0:
		err = fmt.Errorf("%q has no prefix: write those that the Node has, or remove the line", line)
	case strings.ContainsAny(line, "\r\n"):
		err = fmt.Errorf("%q is more than one line: write each holding as one", line)
	}
	if err != nil {
		return Holding{}, fmt.Errorf("record of Node %s: %w", name, err)
	}
	return h, nil
}

func (h *Holding) read(word string) error {
	key, value, ok := strings.Cut(word, "=")
	if !ok {
		return h.readPrefix(&h.Prefixes, word)
	}
	switch key += "="; key {
	case uidWord:
		return setOnce(&h.Node.UID, word, key, value)
	case idWord:
		return setOnce(&h.Node.ProviderID, word, key, value)
	case abandonedWord:
		if h.Abandoned != nil {
			return twice(word, key)
		}
		for text := range strings.SplitSeq(value, ",") {
			if err := h.readPrefix(&h.Abandoned, text); err != nil {
				return err
			}
		}
		return nil
	case releasedWord:
		if !h.Released.IsZero() {
			return twice(word, key)
		}
		t, err := time.Parse(time.RFC3339Nano, value)
		if err != nil || t.IsZero() {
			return fmt.Errorf("%q is no time: write one such as %s2026-11-20T22:00:00Z, or remove the word if the Node is not gone", word, key)
		}
		h.Released = t.UTC()
		return nil
	}
	return fmt.Errorf("unknown word %q: use %s %s %s %s and prefixes", word, uidWord, idWord,
		abandonedWord, releasedWord)
}

func (h *Holding) readPrefix(list *[]netip.Prefix, text string) error {
	prefix, pool, named := strings.Cut(text, "@")
	p, err := parsePrefix(prefix)
	if err != nil {
		return err
	}
	if named && !validName(pool) {
		return fmt.Errorf("%q names no pool after the @: write the pool's name, or neither if none handed it out", text)
	}
	if slices.Contains(h.Prefixes, p) || slices.Contains(h.Abandoned, p) {
		return fmt.Errorf("%q is there twice: remove one of them", text)
	}
	*list = append(*list, p)
	if named {
		h.Pools[p] = pool
	}
	return nil
}

// setOnce sets a text that may occur once and must not be empty.
func setOnce(text *string, word, what, value string) error {
	if *text != "" {
		return twice(word, what)
	}
	value, err := url.PathUnescape(value)
	if err != nil || value == "" {
		return fmt.Errorf("%q has no value that can be read: write one after %s, with %%XX for each special byte", word, what)
	}
	*text = value
	return nil
}

func twice(word, what string) error {
	return fmt.Errorf("%q is the second %s: remove one of them", word, what)
}

// parsePrefix rejects host bits.
func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p,
			fmt.Errorf("%q is no prefix: write an address and a length, such as 10.244.3.0/24", text)
	}
	if p != canonical(p) {
		return p, fmt.Errorf("%q is not the first address of its range: write %s", text, canonical(p))
	}
	return p, nil
}

// escape writes spaces, control characters, % and non-ASCII bytes as %XX.
func escape(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
