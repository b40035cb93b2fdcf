package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Cursor is the order in which a pool hands out node prefixes, independent of which are
// free. Restoring it keeps a prefix released just before a restart from being handed out next.
// It is only a preference: without it, or with a wrong one, no prefix is handed out twice.
type Cursor struct {
	// Next is where the search for a prefix without recent use continues.
	Next netip.Prefix
	// Released holds the latest released prefixes, at most 64, oldest first. They are used last.
	Released []netip.Prefix
	// Turn is the highest in the latest of several Cursors. It is 0 if there is one object.
	Turn int
}

const (
	nextWord     = "next="
	turnWord     = "turn="
	releasedWord = "released="
)

// String returns the text form: next=10.244.7.0/24 released=10.244.1.0/24,10.244.2.0/24. The
// zero Cursor is the empty string.
func (c Cursor) String() string {
	if !c.Next.IsValid() {
		return ""
	}
	text := nextWord + c.Next.String()
	if len(c.Released) > 0 {
		text += " " + releasedWord + join(c.Released, ",")
	}
	if c.Turn > 0 {
		text += " " + turnWord + strconv.Itoa(c.Turn)
	}
	return text
}

// ParseCursor parses the text form of a Cursor.
func ParseCursor(text string) (Cursor, error) {
	var c Cursor
	for _, word := range strings.Fields(text) {
		if err := c.read(word); err != nil {
			return Cursor{}, fmt.Errorf("cursor: %w", err)
		}
	}
	if !c.Next.IsValid() {
		return Cursor{}, fmt.Errorf("cursor %q: no node prefix to go on with: write %s and one, or remove the entry", text, nextWord)
	}
	return c, nil
}

func (c *Cursor) read(word string) error {
	if value, ok := strings.CutPrefix(word, nextWord); ok {
		if c.Next.IsValid() {
			return twice(word, nextWord)
		}
		p, err := parsePrefix(value)
		c.Next = p
		return err
	}
	if value, ok := strings.CutPrefix(word, turnWord); ok {
		turn, err := strconv.Atoi(value)
		if c.Turn > 0 || err != nil || turn < 1 || strconv.Itoa(turn) != value {
			return fmt.Errorf("%q is no turn, or the second one: write %s and a number from 1 on, or remove the word", word, turnWord)
		}
		c.Turn = turn
		return nil
	}
	list, ok := strings.CutPrefix(word, releasedWord)
	if !ok {
		return fmt.Errorf("unknown word %q: use %s and %s", word, nextWord, releasedWord)
	}
	if c.Released != nil {
		return twice(word, releasedWord)
	}
	for value := range strings.SplitSeq(list, ",") {
		p, err := parsePrefix(value)
		if err != nil {
			return err
		}
		if slices.Contains(c.Released, p) {
			return fmt.Errorf("%q names %s twice: remove one of them", word, p)
		}
		c.Released = append(c.Released, p)
	}
	if len(c.Released) > maxReleased {
		return fmt.Errorf("%s has %d node prefixes: leave at most the last %d of them", releasedWord, len(c.Released), maxReleased)
	}
	return nil
}

// Cursor returns the Cursor of a pool, the zero Cursor if no pool with a range has that name.
func (l *Ledger) Cursor(pool string) Cursor {
	p := l.pool(pool)
	if p == nil || p.Own {
		return Cursor{}
	}
	c := Cursor{Next: p.grid.at(p.next)}
	for _, i := range p.released {
		c.Released = append(c.Released, p.grid.at(i))
	}
	return c
}

// SetCursor restores the order that a Cursor holds, without the prefixes that the pool no
// longer carves. It fails only if no pool with a range has that name.
func (l *Ledger) SetCursor(pool string, c Cursor) error {
	p := l.pool(pool)
	if p == nil || p.Own {
		return fmt.Errorf("cursor of pool %q: no pool with a range has that name: configure it, or remove the cursor", pool)
	}
	p.next, p.released = 0, nil
	if p.carves(c.Next) {
		p.next = p.grid.index(c.Next.Addr())
	}
	for _, q := range c.Released {
		if !p.carves(q) {
			continue
		}
		i := p.grid.index(q.Addr())
		if _, held := l.claims.get(q); !held && !slices.Contains(p.released, i) && len(p.released) < maxReleased {
			p.released = append(p.released, i)
		}
	}
	return nil
}
