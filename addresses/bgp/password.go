package bgp

import (
	"fmt"
	"strings"
)

// redacted stands wherever a password would.
const redacted = "[redacted]"

// maxPassword is what Linux takes as a key of TCP MD5 signatures (TCP_MD5SIG_MAXKEYLEN), in bytes.
const maxPassword = 80

// Password is the key of a session's TCP MD5 signatures (RFC 2385). It prints as [redacted]
// everywhere; only Reveal tells it. The zero value is none.
type Password struct {
	// A closure, because fmt and encoders that reach an unexported field by
	// reflection can't see into a function.
	reveal func() string
}

// NewPassword checks a password as it may come from a file: white space around it is dropped. The
// error never holds it.
func NewPassword(text string) (Password, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return Password{}, fmt.Errorf("the password is empty: put in the one that the router has for this node, or name no file")
	case len(text) > maxPassword:
		return Password{}, fmt.Errorf("the password has %d bytes, and the kernel takes %d: set a shorter one on both sides", len(text), maxPassword)
	case strings.ContainsAny(text, "\r\n\x00"):
		return Password{}, fmt.Errorf("the password holds a line break or a zero byte: copy it again, alone and on one line")
	}
	return Password{reveal: func() string { return text }}, nil
}

// Reveal is the password; "" for none.
func (p Password) Reveal() string {
	if p.reveal == nil {
		return ""
	}
	return p.reveal()
}

// Format prints [redacted] for every verb and flag.
func (Password) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns [redacted]; JSON and YAML encoders use it.
func (Password) MarshalText() ([]byte, error) { return []byte(redacted), nil }
