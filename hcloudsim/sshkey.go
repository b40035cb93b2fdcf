package hcloudsim

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindSSHKey = "ssh_key"

type sshKey struct {
	base
	publicKey, fingerprint string
}

func (p *project) renderSSHKey(k *sshKey) schema.SSHKey {
	return schema.SSHKey{
		ID: k.id, Name: k.name, Fingerprint: k.fingerprint, PublicKey: k.publicKey,
		Labels: cloneLabels(k.labels), Created: k.created,
	}
}

// parsePublicKey parses an authorized_keys entry, and returns its MD5 fingerprint, as in the API.
func parsePublicKey(text string) (fingerprint string, err error) {
	fields := strings.Fields(text)
	if len(fields) < 2 || !slices.Contains([]string{
		"ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
		"sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
	}, fields[0]) {
		return "", errInvalid("public_key", "is no public key as in authorized_keys (RFC 4253)")
	}
	blob, err := base64.StdEncoding.DecodeString(fields[1])
	// The blob begins with the name of its algorithm.
	if err != nil || len(blob) < 4+len(fields[0]) ||
		int(binary.BigEndian.Uint32(blob)) != len(fields[0]) || string(blob[4:4+len(fields[0])]) != fields[0] {
		return "", errInvalid("public_key", "its body is not of type %s", fields[0])
	}
	sum := md5.Sum(blob)
	parts := make([]string, 0, len(sum))
	for _, b := range sum {
		parts = append(parts, fmt.Sprintf("%02x", b))
	}
	return strings.Join(parts, ":"), nil
}

func sshKeyOperations() []operation {
	return kind[*sshKey]{
		name: kindSSHKey, plural: "ssh_keys",
		rows: func(p *project) *table[*sshKey] { return &p.sshKeys },
		body: func(p *project, k *sshKey) any { return p.renderSSHKey(k) },
		filters: map[string]filter[*sshKey]{
			"fingerprint": {of: func(k *sshKey) string { return k.fingerprint }},
		},
	}.operations((*call).createSSHKey)
}

func (c *call) createSSHKey() (reply, error) {
	req, err := decode[schema.SSHKeyCreateRequest](c)
	if err != nil {
		return reply{}, err
	}
	if exceeds(len(c.sshKeys.rows), c.opts.SSHKeyLimit) {
		return reply{}, errLimit("ssh_key_limit", c.opts.SSHKeyLimit)
	}
	b, err := newNamed(&c.sshKeys, checkName, req.Name, req.Labels)
	if err != nil {
		return reply{}, err
	}
	fingerprint, err := parsePublicKey(req.PublicKey)
	if err != nil {
		return reply{}, err
	}
	for _, other := range c.sshKeys.rows {
		if other.fingerprint == fingerprint {
			return reply{}, errTaken("public_key", "SSH key with the same fingerprint")
		}
	}
	k := &sshKey{c.newBase(b.name, b.labels), req.PublicKey, fingerprint}
	c.sshKeys.add(k)
	return ok(http.StatusCreated, kindSSHKey, c.renderSSHKey(k))
}

// checkSSHKeys returns an error if a key, given by ID or name, doesn't exist.
func (p *project) checkSSHKeys(keys []schema.IDOrName) error {
	for _, key := range keys {
		if _, err := named(&p.sshKeys, kindSSHKey, key); err != nil {
			return err
		}
	}
	return nil
}
