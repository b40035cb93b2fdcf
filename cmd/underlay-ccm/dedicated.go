package main

import (
	"context"
	"net/http"
	"time"

	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/robot"
	"github.com/underlay-ccm/underlay/internal/wiring"
)

// configureDedicated sets up Robot, the inventory, both or neither. It sends no request.
func (m *manager) configureDedicated(transport http.RoundTripper, metrics robot.Registry) error {
	m.machines.Configured = wiring.Machines(m.config)
	if !m.config.Robot.Enabled {
		return nil
	}
	if transport == nil {
		transport = robot.NewTransport()
	}
	client, err := robot.New(robot.Options{
		Endpoint:    m.config.Robot.Endpoint,
		Credentials: robotCredentials(m.config.Robot),
		Version:     version.Get().GitVersion,
		Registry:    metrics,
		Transport:   m.gate.Wrap(transport), // it routes failover addresses
	})
	if err != nil {
		return err
	}
	m.robot = client
	m.account = robot.NewServers(client, logListed)
	m.machines.Robot = m.account
	return nil
}

// checkRobot lists the dedicated servers in the background, so that wrong credentials are reported
// when this replica becomes the leader. Other replicas send no requests, because repeated wrong
// credentials get their address blocked.
func (m *manager) checkRobot(ctx context.Context) {
	if m.account != nil {
		go func() { _, _ = m.account.List(ctx, time.Time{}) }() // logListed logs the error
	}
}

// logListed logs when dedicated servers can't be listed, such as in an outage or with refused
// credentials, and when that ends.
func logListed(err error) {
	if err != nil {
		klog.ErrorS(err,
			"Dedicated servers can't be listed; their last known state is used, and none is declared absent")
		return
	}
	klog.InfoS("Dedicated servers can be listed again")
}

func robotCredentials(c config.Robot) func() (robot.Credentials, error) {
	return func() (robot.Credentials, error) {
		user, err := c.User.Read()
		if err != nil {
			return robot.Credentials{}, err
		}
		password, err := c.Password.Read()
		if err != nil {
			return robot.Credentials{}, err
		}
		return robot.NewCredentials(user.Reveal(), password.Reveal())
	}
}
