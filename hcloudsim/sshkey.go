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

func (c *call) sshKey() (*sshKey, error) { return found(c, &c.sshKeys, kindSSHKey) }

func (c *call) listSSHKeys() (reply, error) {
	chosen, err := selected(c, &c.sshKeys)
	if err != nil {
		return reply{}, err
	}
	if prints := c.request.URL.Query()["fingerprint"]; len(prints) > 0 {
		chosen = slices.DeleteFunc(chosen, func(k *sshKey) bool { return !slices.Contains(prints, k.fingerprint) })
	}
	return list(c, "ssh_keys", chosen, byBase[*sshKey](), c.renderSSHKey)
}

func (c *call) getSSHKey() (reply, error) {
	k, err := c.sshKey()
	if err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindSSHKey, c.renderSSHKey(k))
}

func (c *call) createSSHKey() (reply, error) {
	req, err := decode[schema.SSHKeyCreateRequest](c)
	if err != nil {
		return reply{}, err
	}
	if exceeds(len(c.sshKeys.rows), c.opts.SSHKeyLimit) {
		return reply{}, errLimit("ssh_key_limit", c.opts.SSHKeyLimit)
	}
	if err := checkName(req.Name); err != nil {
		return reply{}, err
	}
	if err := c.sshKeys.nameFree(req.Name, 0); err != nil {
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
	labels, err := newLabels(req.Labels)
	if err != nil {
		return reply{}, err
	}
	k := &sshKey{base: c.newBase(req.Name, labels), publicKey: req.PublicKey, fingerprint: fingerprint}
	c.sshKeys.add(k)
	return ok(http.StatusCreated, kindSSHKey, c.renderSSHKey(k))
}

func (c *call) updateSSHKey() (reply, error) {
	k, err := c.sshKey()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.SSHKeyUpdateRequest](c)
	if err != nil {
		return reply{}, err
	}
	if req.Name != "" {
		if err := checkName(req.Name); err != nil {
			return reply{}, err
		}
		if err := c.sshKeys.nameFree(req.Name, k.id); err != nil {
			return reply{}, err
		}
	}
	if err := k.update(req.Name, req.Labels); err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindSSHKey, c.renderSSHKey(k))
}

func (c *call) deleteSSHKey() (reply, error) {
	k, err := c.sshKey()
	if err != nil {
		return reply{}, err
	}
	c.sshKeys.remove(k.id)
	return reply{status: http.StatusNoContent}, nil
}

// knowsSSHKeys returns an error if a key, given by ID or name, doesn't exist.
func (p *project) knowsSSHKeys(keys []schema.IDOrName) error {
	identity := func(k *sshKey) (int64, string) { return k.id, k.name }
	for _, key := range keys {
		if _, known := lookup(p.sshKeys.rows, key, identity); known {
			continue
		}
		if key.ID != 0 {
			return errNotFound(kindSSHKey, key.ID)
		}
		return errNotFound(kindSSHKey, key.Name)
	}
	return nil
}
