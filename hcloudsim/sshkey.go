package hcloudsim

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"fmt"
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

func sshKeyKind() kind[*sshKey] {
	return kind[*sshKey]{
		name: kindSSHKey, plural: "ssh_keys",
		rows: func(p *project) *table[*sshKey] { return &p.sshKeys },
		body: func(p *project, k *sshKey) any { return p.renderSSHKey(k) },
		filters: map[string]filter[*sshKey]{
			"fingerprint": {of: func(k *sshKey) string { return k.fingerprint }},
		},
	}
}

func sshKeyOperations() []operation {
	k := sshKeyKind()
	return k.operations(create(k, (*call).createSSHKey))
}

func (c *call) createSSHKey(req schema.SSHKeyCreateRequest) (*sshKey, map[string]any, error) {
	b, err := sshKeyKind().new(c.project, req.Name, req.Labels)
	if err != nil {
		return nil, nil, err
	}
	fingerprint, err := parsePublicKey(req.PublicKey)
	if err != nil {
		return nil, nil, err
	}
	for _, other := range c.sshKeys.rows {
		if other.fingerprint == fingerprint {
			return nil, nil, errTaken("public_key", "SSH key with the same fingerprint")
		}
	}
	k := &sshKey{c.newBase(b), req.PublicKey, fingerprint}
	c.sshKeys.add(k)
	return k, nil, nil
}

// parsePublicKey parses an authorized_keys entry, and returns its MD5 fingerprint, as in the API.
func parsePublicKey(text string) (fingerprint string, err error) {
	fields := strings.Fields(text)
	if len(fields) < 2 || !slices.Contains([]string{
		"ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
		"ecdsa-sha2-nistp521", "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
	}, fields[0]) {
		return "", errInvalid("public_key", "is no public key as in authorized_keys (RFC 4253)")
	}
	blob, err := base64.StdEncoding.DecodeString(fields[1])
	// The blob begins with the length and the name of its algorithm.
	name := binary.BigEndian.AppendUint32(nil, uint32(len(fields[0])))
	if err != nil || !strings.HasPrefix(string(blob), string(name)+fields[0]) {
		return "", errInvalid("public_key", "its body is not of type %s", fields[0])
	}
	sum := md5.Sum(blob)
	return strings.ReplaceAll(fmt.Sprintf("% x", sum), " ", ":"), nil
}
