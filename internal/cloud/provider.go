package cloud

import (
	cloudprovider "k8s.io/cloud-provider"
)

// Provider is the cloudprovider.Interface: instances and nothing else, since
// routes and load balancers have controllers of our own.
type Provider struct {
	Name string // the scheme of provider IDs
	V2   cloudprovider.InstancesV2
}

var _ cloudprovider.Interface = Provider{}

// Initialize has nothing to start.
func (p Provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// InstancesV2 answers the node controllers.
func (p Provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return p.V2, true }

// ProviderName is the scheme of provider IDs.
func (p Provider) ProviderName() string { return p.Name }

// HasClusterID: ownership does not rest on tags of instances.
func (p Provider) HasClusterID() bool { return true }

// Instances is the interface that InstancesV2 replaced.
func (p Provider) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones are part of what InstancesV2 answers.
func (p Provider) Zones() (cloudprovider.Zones, bool) { return nil, false }

// LoadBalancer is not for upstream's controller.
func (p Provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return nil, false }

// Routes are not for upstream's controller.
func (p Provider) Routes() (cloudprovider.Routes, bool) { return nil, false }

// Clusters are not supported.
func (p Provider) Clusters() (cloudprovider.Clusters, bool) { return nil, false }
