package project

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// tokenReadonly is the code of a change with a token that may only read.
const tokenReadonly hcloud.ErrorCode = "token_readonly"

// CheckToken finds out whether there is an API at the endpoint, and whether the token is one.
func (p *Project) CheckToken(ctx context.Context) error {
	_, response, err := p.client.Location.List(ctx, hcloud.LocationListOpts{})
	switch {
	case err == nil:
		return nil
	case response != nil && response.Response != nil && response.StatusCode == http.StatusNotFound:
		return fmt.Errorf("there is no API at the endpoint: its path is part of it, as in %s: %w", hcloud.Endpoint, err)
	case hcloud.IsError(err, hcloud.ErrorCodeUnauthorized):
		return fmt.Errorf("the API refuses the token: "+
			"take one of the project, with permission to read and write: %w", err)
	}
	return fmt.Errorf("asking the API: %w", err)
}

// Key is an SSH key for servers: one without gets a root password, which the cloud mails to the owner
// of the account. Nobody has the other half of it. It is made first, so that its error says whether
// the token may change things.
func (p *Project) Key(ctx context.Context) (*hcloud.SSHKey, error) {
	if p.key != nil {
		return p.key, nil
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making an SSH key: %w", err)
	}
	name := p.Name("nobody")
	made, _, err := p.client.SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{
		Name: name, PublicKey: authorized(public), Labels: p.Labels(),
	})
	if err != nil { // and its reply may be lost: any key of that name does
		if found, _, unknown := p.client.SSHKey.GetByName(ctx, name); unknown == nil && found != nil {
			made, err = found, nil
		}
	}
	switch {
	case hcloud.IsError(err, tokenReadonly, hcloud.ErrorCodeForbidden):
		return nil, fmt.Errorf("the token may only read: take one with permission to read and write, "+
			"since what is measured is made first: %w", err)
	case err != nil:
		return nil, fmt.Errorf("making an SSH key: %w", err)
	}
	p.key = made
	return made, nil
}

// authorized renders a key as in authorized_keys (RFC 8709, RFC 4253).
func authorized(key ed25519.PublicKey) string {
	const algorithm = "ssh-ed25519"
	var blob []byte
	for _, part := range [][]byte{[]byte(algorithm), key} {
		blob = binary.BigEndian.AppendUint32(blob, uint32(len(part)))
		blob = append(blob, part...)
	}
	return algorithm + " " + base64.StdEncoding.EncodeToString(blob)
}
