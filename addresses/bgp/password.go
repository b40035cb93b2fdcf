package bgp

import (
	"fmt"
	"strings"

	"github.com/underlay-ccm/underlay/internal/secret"
)

// maxPassword is the maximum length of a TCP MD5 key in Linux (TCP_MD5SIG_MAXKEYLEN), in bytes.
const maxPassword = 80

// Password is the key of a session's TCP MD5 signatures (RFC 2385).
type Password struct{ secret.Text }

// NewPassword validates a password from a file, without surrounding white space. The error never
// contains the password.
func NewPassword(text string) (Password, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return Password{}, fmt.Errorf("the password is empty: put in the one that the router has for this node, or name no file")
	case len(text) > maxPassword:
		return Password{},
			fmt.Errorf("the password has %d bytes, and the kernel takes %d: set a shorter one on both sides",
				len(text), maxPassword)
	case strings.ContainsAny(text, "\r\n\x00"):
		return Password{}, fmt.Errorf("the password holds a line break or a zero byte: copy it again, alone and on one line")
	}
	return Password{secret.New(text)}, nil
}
