package project

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// sshKey is the one that the servers of a run have.
type sshKey struct {
	mu   sync.Mutex
	made *hcloud.SSHKey
}

// Key is an SSH key for the servers of the run: a server without one gets a root password, which
// the cloud mails to the owner of the account. Nobody has the other half of it.
func (p *Project) Key(ctx context.Context) (*hcloud.SSHKey, error) {
	p.key.mu.Lock()
	defer p.key.mu.Unlock()
	if p.key.made != nil {
		return p.key.made, nil
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
	if err != nil {
		return nil, fmt.Errorf("making an SSH key: %w", err)
	}
	p.key.made = made
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
