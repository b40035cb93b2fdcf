package lbtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/underlay-ccm/underlay/lb"
)

// AddCertificate puts a certificate into the project and returns its ID.
func (c *Cloud) AddCertificate(cert lb.Certificate) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addCertificate(cert)
}

func (c *Cloud) addCertificate(cert lb.Certificate) int64 {
	cert.ID = 1000 + c.nextID
	c.nextID++
	c.certificates[cert.ID] = cert
	return cert.ID
}

// FailCertificate makes a certificate one that could not be obtained.
func (c *Cloud) FailCertificate(id int64, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cert := c.certificates[id]
	cert.Failed = reason
	c.certificates[id] = cert
}

// HideCertificates lets a look at certificates fail from now on; nil ends that.
func (c *Cloud) HideCertificates(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.certificateFault = err
}

// Candidates implements lb.Backend.
func (c *Cloud) Candidates(ctx context.Context, owner lb.Owner, name string) ([]lb.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(c.all(), func(s lb.State) bool {
		return s.Name != name && s.Labels[lb.LabelPeer] != owner.UID
	}), nil
}

// Certificates implements lb.Backend.
func (c *Cloud) Certificates(ctx context.Context) ([]lb.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if err := cmp.Or(ctx.Err(), c.certificateFault); err != nil {
		return nil, err
	}
	var all []lb.Certificate
	for _, id := range slices.Sorted(maps.Keys(c.certificates)) {
		cert := c.certificates[id]
		cert.Users = c.usersOf(id)
		all = append(all, cert)
	}
	return all, nil
}

func (c *Cloud) usersOf(id int64) (users []int64) {
	for _, s := range c.all() {
		if slices.ContainsFunc(s.Listeners, func(l lb.Listener) bool {
			return slices.Contains(strings.Split(l.HTTP.Certificates, ","), strconv.FormatInt(id, 10))
		}) {
			users = append(users, s.ID)
		}
	}
	return users
}

func (c *Cloud) createCertificate(op lb.CreateCertificate) error {
	for _, cert := range c.certificates {
		if cert.Name == op.Certificate.Name {
			return fmt.Errorf("certificate %q %w", cert.Name, lb.ErrNotOwned)
		}
	}
	c.addCertificate(lb.Certificate{
		Name: op.Certificate.Name, Labels: op.Certificate.Labels(op.Owner), Managed: true, Domains: op.Certificate.Domains,
	})
	return nil
}

func (c *Cloud) retryCertificate(op lb.RetryCertificate) error {
	cert, ok := c.certificates[op.ID]
	if !ok || cert.Failed == "" {
		return errors.New("there is nothing to retry")
	}
	cert.Failed = ""
	c.certificates[op.ID] = cert
	return nil
}

func (c *Cloud) deleteCertificate(op lb.DeleteCertificate) error {
	if len(c.usersOf(op.ID)) > 0 {
		return errors.New("the certificate is in use")
	}
	delete(c.certificates, op.ID)
	return nil
}
