-- Made by scripts/new_state.py from the migrations.
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE blobs (
	owner_id VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	blob_id VARCHAR(64) NOT NULL, 
	size BIGINT NOT NULL, 
	etag VARCHAR(128) NOT NULL, 
	modified_at DOUBLE NOT NULL, 
	checksum TEXT, 
	CONSTRAINT pk_blobs PRIMARY KEY (owner_id, number), 
	CONSTRAINT uq_blobs_blob_id UNIQUE (blob_id)
);
CREATE TABLE buckets (
	name VARCHAR(63) NOT NULL, 
	created_at DOUBLE NOT NULL, settings TEXT, 
	CONSTRAINT pk_buckets PRIMARY KEY (name)
);
CREATE TABLE endpoint_configs (
	"key" VARCHAR(63) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	definition JSON NOT NULL, 
	CONSTRAINT pk_endpoint_configs PRIMARY KEY ("key")
);
CREATE INDEX ix_endpoint_configs_created_at ON endpoint_configs (created_at);
CREATE TABLE endpoints (
	"key" VARCHAR(63) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	modified_at DOUBLE NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	failure_reason TEXT, 
	current JSON, 
	target JSON, 
	last_deployment_config JSON, running JSON, 
	CONSTRAINT pk_endpoints PRIMARY KEY ("key")
);
CREATE INDEX ix_endpoints_created_at ON endpoints (created_at);
CREATE TABLE instances (
	instance_id VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(63) NOT NULL, 
	deployment_id VARCHAR(64) NOT NULL, 
	variant_name VARCHAR(63) NOT NULL, 
	spec JSON NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	address TEXT, 
	failure_reason TEXT, 
	stop_at DOUBLE, 
	CONSTRAINT pk_instances PRIMARY KEY (instance_id)
);
CREATE INDEX ix_instances_endpoint_name ON instances (endpoint_name);
CREATE TABLE models (
	"key" VARCHAR(63) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	definition JSON NOT NULL, 
	CONSTRAINT pk_models PRIMARY KEY ("key")
);
CREATE INDEX ix_models_created_at ON models (created_at);
CREATE TABLE objects (
	bucket VARCHAR(63) NOT NULL, 
	"key" BLOB NOT NULL, 
	object_id VARCHAR(64) NOT NULL, 
	size BIGINT NOT NULL, 
	etag VARCHAR(128) NOT NULL, 
	modified_at DOUBLE NOT NULL, 
	attributes TEXT NOT NULL, 
	checksum TEXT, 
	data BLOB, 
	CONSTRAINT pk_objects PRIMARY KEY (bucket, "key")
);
CREATE TABLE uploads (
	upload_id VARCHAR(64) NOT NULL, 
	bucket VARCHAR(63) NOT NULL, 
	"key" BLOB NOT NULL, 
	started_at DOUBLE NOT NULL, 
	attributes TEXT NOT NULL, 
	algorithm VARCHAR(16), 
	kind VARCHAR(16) NOT NULL, key_deleted BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_uploads PRIMARY KEY (upload_id)
);
CREATE INDEX ix_uploads_bucket ON uploads (bucket, "key", upload_id);
CREATE TABLE async_requests (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	request_id VARCHAR(36) NOT NULL, 
	inference_id VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(63) NOT NULL, 
	received_at DOUBLE NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	timeout_seconds DOUBLE NOT NULL, 
	location TEXT NOT NULL, 
	failure_location TEXT, 
	notices TEXT, 
	input_location TEXT, 
	content_type TEXT, 
	accept TEXT, 
	custom_attributes TEXT, 
	state VARCHAR(16) NOT NULL, 
	attempt INTEGER NOT NULL, 
	lost INTEGER NOT NULL, 
	reclaimed INTEGER NOT NULL, 
	redrives INTEGER NOT NULL, 
	end_at DOUBLE NOT NULL, 
	cancel_requested_at DOUBLE, 
	worker VARCHAR(512), 
	lease_until DOUBLE, 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	outcome TEXT
);
CREATE INDEX ix_async_requests_inference ON async_requests (endpoint_name, inference_id);
CREATE INDEX ix_async_requests_queued ON async_requests (endpoint_name, sequence) WHERE state = 'QUEUED';
CREATE INDEX ix_async_requests_end_at ON async_requests (end_at) WHERE state = 'QUEUED';
CREATE INDEX ix_async_requests_leased ON async_requests (lease_until) WHERE state = 'LEASED';
CREATE INDEX ix_async_requests_failed ON async_requests (endpoint_name, sequence) WHERE state IN ('FAILED', 'EXPIRED', 'CANCELLED');
CREATE INDEX ix_async_requests_ended_at ON async_requests (ended_at) WHERE ended_at IS NOT NULL;
CREATE TABLE async_bodies (
	sequence INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	CONSTRAINT pk_async_bodies PRIMARY KEY (sequence)
);
CREATE TABLE async_endpoints (
	endpoint_name VARCHAR(63) NOT NULL, 
	queued BIGINT DEFAULT '0' NOT NULL, 
	leased BIGINT DEFAULT '0' NOT NULL, 
	mode VARCHAR(16) DEFAULT 'OPEN' NOT NULL, 
	abandoned_to BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_async_endpoints PRIMARY KEY (endpoint_name)
);
CREATE TABLE deliveries (
	delivery_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	subscription_arn VARCHAR(384) NOT NULL, 
	notice_id BIGINT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	attempts INTEGER NOT NULL, 
	due_at DOUBLE NOT NULL
, delay_seconds DOUBLE);
CREATE INDEX ix_deliveries_notice_id ON deliveries (notice_id);
CREATE INDEX ix_deliveries_subscription_arn ON deliveries (subscription_arn, due_at);
CREATE TABLE emptied_queues (
	queue_id VARCHAR(32) NOT NULL, 
	emptied_at DOUBLE NOT NULL, 
	CONSTRAINT pk_emptied_queues PRIMARY KEY (queue_id)
);
CREATE TABLE notices (
	notice_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	content BLOB NOT NULL
);
CREATE TABLE queue_messages (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	queue_id VARCHAR(32) NOT NULL, 
	message_id VARCHAR(36) NOT NULL, 
	body TEXT NOT NULL, 
	content BLOB, 
	sent_at DOUBLE NOT NULL, 
	visible_at DOUBLE NOT NULL, 
	receives INTEGER NOT NULL, 
	first_received_at DOUBLE, 
	receipt VARCHAR(32)
, hidden_seconds DOUBLE);
CREATE INDEX ix_queue_messages_sent ON queue_messages (queue_id, sent_at);
CREATE INDEX ix_queue_messages_visible ON queue_messages (queue_id, visible_at);
CREATE TABLE queues (
	name VARCHAR(80) NOT NULL, 
	queue_id VARCHAR(32) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	modified_at DOUBLE NOT NULL, 
	attributes JSON NOT NULL, 
	CONSTRAINT pk_queues PRIMARY KEY (name)
);
CREATE TABLE subscriptions (
	arn VARCHAR(384) NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	topic_arn VARCHAR(320) NOT NULL, 
	protocol VARCHAR(32) NOT NULL, 
	endpoint TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	attributes JSON NOT NULL, 
	token VARCHAR(64) NOT NULL, 
	token_expires_at DOUBLE NOT NULL, 
	confirmed_by_owner BOOLEAN NOT NULL, 
	authenticate_on_unsubscribe BOOLEAN NOT NULL, 
	CONSTRAINT pk_subscriptions PRIMARY KEY (arn), 
	CONSTRAINT uq_subscriptions_key UNIQUE ("key"), 
	CONSTRAINT uq_subscriptions_token UNIQUE (token)
);
CREATE INDEX ix_subscriptions_topic_arn ON subscriptions (topic_arn, state);
CREATE TABLE topics (
	arn VARCHAR(320) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	attributes JSON NOT NULL, 
	CONSTRAINT pk_topics PRIMARY KEY (arn)
);
CREATE TABLE series (
	series_id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	metric VARCHAR(64) NOT NULL, 
	namespace TEXT NOT NULL, 
	name TEXT NOT NULL, 
	dimensions TEXT NOT NULL, 
	unit VARCHAR(32) NOT NULL, 
	last_minute INTEGER NOT NULL, 
	CONSTRAINT pk_series PRIMARY KEY (series_id), 
	CONSTRAINT uq_series_digest UNIQUE (digest)
);
CREATE INDEX ix_series_metric ON series (metric);
CREATE INDEX ix_series_namespace ON series (namespace, name);
CREATE TABLE samples (
	series_id INTEGER NOT NULL, 
	minute INTEGER NOT NULL, 
	count DOUBLE NOT NULL, 
	sum DOUBLE NOT NULL, 
	minimum DOUBLE NOT NULL, 
	maximum DOUBLE NOT NULL, 
	buckets BLOB, 
	CONSTRAINT pk_samples PRIMARY KEY (series_id, minute)
)
 WITHOUT ROWID

;
CREATE TABLE training_jobs (
	"key" VARCHAR(63) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	definition JSON NOT NULL, 
	job_id VARCHAR(32) NOT NULL, 
	modified_at DOUBLE NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	stage VARCHAR(16) NOT NULL, 
	transitions JSON NOT NULL, 
	attempt INTEGER NOT NULL, 
	retries INTEGER NOT NULL, 
	phases INTEGER NOT NULL, 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	run_seconds DOUBLE NOT NULL, 
	failure_reason TEXT, 
	stop_requested_at DOUBLE, 
	ends_as VARCHAR(32) NOT NULL, 
	gives_up_at DOUBLE, 
	clock_shift DOUBLE NOT NULL, 
	metrics JSON NOT NULL, 
	artifacts JSON NOT NULL, 
	CONSTRAINT pk_training_jobs PRIMARY KEY ("key"), 
	CONSTRAINT uq_training_jobs_job_id UNIQUE (job_id)
);
CREATE INDEX ix_training_jobs_created_at ON training_jobs (created_at);
CREATE INDEX ix_training_jobs_status ON training_jobs (status, stage, created_at);
CREATE INDEX ix_training_jobs_stage ON training_jobs (stage, created_at, "key");
CREATE INDEX ix_training_jobs_gives_up_at ON training_jobs (stage, gives_up_at);
CREATE TABLE event_rules (
	name VARCHAR(64) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	event_pattern TEXT NOT NULL, 
	description TEXT, 
	role_arn TEXT, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_event_rules PRIMARY KEY (name)
);
CREATE INDEX ix_event_rules_state ON event_rules (state);
CREATE TABLE event_targets (
	rule_name VARCHAR(64) NOT NULL, 
	target_id VARCHAR(64) NOT NULL, 
	target_arn TEXT NOT NULL, 
	definition JSON NOT NULL, 
	secret VARCHAR(128), 
	CONSTRAINT pk_event_targets PRIMARY KEY (rule_name, target_id)
);
CREATE INDEX ix_event_targets_target_arn ON event_targets (target_arn);
CREATE TABLE event_connections (
	name VARCHAR(64) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	definition JSON NOT NULL, 
	created_at DOUBLE NOT NULL, 
	modified_at DOUBLE NOT NULL, 
	CONSTRAINT pk_event_connections PRIMARY KEY (name)
);
CREATE TABLE event_destinations (
	name VARCHAR(64) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	definition JSON NOT NULL, 
	created_at DOUBLE NOT NULL, 
	modified_at DOUBLE NOT NULL, 
	CONSTRAINT pk_event_destinations PRIMARY KEY (name)
);
CREATE TABLE inference_services (
	stage VARCHAR(64) NOT NULL, 
	source VARCHAR(16) NOT NULL, 
	given JSON NOT NULL, 
	created_at DOUBLE NOT NULL, 
	modified_at DOUBLE NOT NULL, 
	emails JSON NOT NULL, 
	closing BOOLEAN NOT NULL, 
	CONSTRAINT pk_inference_services PRIMARY KEY (stage)
);
CREATE TABLE inference_jobs (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_name VARCHAR(63) NOT NULL, 
	stage VARCHAR(64) NOT NULL, 
	type TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	topic_arn VARCHAR(320) NOT NULL, 
	definition JSON NOT NULL, 
	created_at DOUBLE NOT NULL, 
	job_id VARCHAR(32), 
	status VARCHAR(16), 
	secondary VARCHAR(32), 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	failure_reason TEXT, 
	result_uri TEXT, 
	notice_id VARCHAR(128), 
	CONSTRAINT uq_inference_jobs_job_name UNIQUE (job_name), 
	CONSTRAINT uq_inference_jobs_job_id UNIQUE (job_id)
);
CREATE INDEX ix_inference_jobs_type ON inference_jobs (stage, type, sequence);
CREATE INDEX ix_inference_jobs_stage ON inference_jobs (stage, sequence);
CREATE INDEX ix_inference_jobs_queued ON inference_jobs (stage, type, sequence) WHERE state = 'QUEUED';
CREATE INDEX ix_inference_jobs_active ON inference_jobs (stage, type) WHERE state = 'ACTIVE';
CREATE INDEX ix_inference_jobs_ended ON inference_jobs (stage, ended_at) WHERE ended_at IS NOT NULL;
CREATE TABLE inference_answers (
	stage VARCHAR(64) NOT NULL, 
	api_key VARCHAR(64) NOT NULL, 
	idempotency_key VARCHAR(255) NOT NULL, 
	body_sha256 VARCHAR(64) NOT NULL, 
	job_name VARCHAR(63) NOT NULL, 
	remaining INTEGER NOT NULL, 
	queued BOOLEAN NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_inference_answers PRIMARY KEY (stage, api_key, idempotency_key)
);
CREATE INDEX ix_inference_answers_created_at ON inference_answers (stage, created_at);
CREATE TABLE api_keys (
	name VARCHAR(64) NOT NULL, 
	key_sha256 VARCHAR(64) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_api_keys PRIMARY KEY (name), 
	CONSTRAINT uq_api_keys_key_sha256 UNIQUE (key_sha256)
);
CREATE TABLE stacks (
	name VARCHAR(128) NOT NULL, 
	version INTEGER NOT NULL, 
	created_at DOUBLE NOT NULL, 
	modified_at DOUBLE NOT NULL, 
	content JSON NOT NULL, 
	claim JSON, 
	CONSTRAINT pk_stacks PRIMARY KEY (name)
);
CREATE TABLE state_identity (
	number INTEGER NOT NULL, 
	state_id VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_state_identity PRIMARY KEY (number)
);
CREATE TABLE transform_jobs (
	"key" VARCHAR(63) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	definition JSON NOT NULL, 
	job_id VARCHAR(32) NOT NULL, 
	modified_at DOUBLE NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	stage VARCHAR(16) NOT NULL, 
	containers JSON NOT NULL, 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	stop_requested_at DOUBLE, 
	failure_reason TEXT, 
	CONSTRAINT pk_transform_jobs PRIMARY KEY ("key"), 
	CONSTRAINT uq_transform_jobs_job_id UNIQUE (job_id)
);
CREATE INDEX ix_transform_jobs_created_at ON transform_jobs (created_at);
CREATE INDEX ix_transform_jobs_status ON transform_jobs (status, stage, created_at);
CREATE INDEX ix_transform_jobs_stage ON transform_jobs (stage, created_at, "key");
CREATE TABLE transform_progress (
	job_id VARCHAR(32) NOT NULL, 
	done_through TEXT, 
	failed_objects BIGINT NOT NULL, 
	failed_error VARCHAR(32), 
	objects BIGINT NOT NULL, 
	objects_known BIGINT NOT NULL, 
	is_listed BOOLEAN NOT NULL, 
	records BIGINT NOT NULL, 
	done_records BIGINT NOT NULL, 
	failed_records BIGINT NOT NULL, 
	input_bytes BIGINT NOT NULL, 
	input_bytes_known BIGINT NOT NULL, 
	max_concurrent INTEGER, 
	max_payload_mb INTEGER, 
	batch_strategy VARCHAR(16), 
	updated_at DOUBLE NOT NULL, 
	CONSTRAINT pk_transform_progress PRIMARY KEY (job_id)
);
CREATE TABLE alarms (
	name VARCHAR(255) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	arn VARCHAR(512) NOT NULL, 
	definition JSON NOT NULL, 
	actions_enabled BOOLEAN NOT NULL, 
	created_at DOUBLE NOT NULL, 
	configured_at DOUBLE NOT NULL, 
	state VARCHAR(24) NOT NULL, 
	reason TEXT NOT NULL, 
	reason_data TEXT, 
	updated_at DOUBLE NOT NULL, 
	transitioned_at DOUBLE NOT NULL, 
	evaluation_state VARCHAR(24), 
	policies_invoked_at DOUBLE, 
	policy_outcome TEXT, 
	suppressed_by VARCHAR(16), 
	suppressed_until DOUBLE, 
	CONSTRAINT pk_alarms PRIMARY KEY (name)
);
CREATE INDEX ix_alarms_kind ON alarms (kind, name);
CREATE INDEX ix_alarms_suppressed_until ON alarms (suppressed_until);
CREATE TABLE alarm_children (
	parent VARCHAR(255) NOT NULL, 
	child VARCHAR(255) NOT NULL, 
	is_suppressor BOOLEAN NOT NULL, 
	CONSTRAINT pk_alarm_children PRIMARY KEY (parent, child, is_suppressor)
);
CREATE INDEX ix_alarm_children_child ON alarm_children (child);
CREATE TABLE alarm_history (
	item_id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	happened_at DOUBLE NOT NULL, 
	item_type VARCHAR(24) NOT NULL, 
	summary TEXT NOT NULL, 
	data TEXT NOT NULL, 
	CONSTRAINT pk_alarm_history PRIMARY KEY (item_id)
);
CREATE INDEX ix_alarm_history_name ON alarm_history (name, item_id);
CREATE INDEX ix_alarm_history_happened_at ON alarm_history (happened_at);
CREATE TABLE fine_samples (
	series_id INTEGER NOT NULL, 
	slot INTEGER NOT NULL, 
	count DOUBLE NOT NULL, 
	sum DOUBLE NOT NULL, 
	minimum DOUBLE NOT NULL, 
	maximum DOUBLE NOT NULL, 
	buckets BLOB, 
	CONSTRAINT pk_fine_samples PRIMARY KEY (series_id, slot)
)
 WITHOUT ROWID

;
CREATE TABLE "tags" (
	arn VARCHAR(512) NOT NULL, 
	"key" VARCHAR(128) NOT NULL, 
	value VARCHAR(256) NOT NULL, 
	CONSTRAINT pk_tags PRIMARY KEY (arn, "key")
);
CREATE TABLE scalable_targets (
	target_id VARCHAR(34) NOT NULL, 
	resource_id VARCHAR(255) NOT NULL, 
	dimension VARCHAR(64) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	minimum INTEGER NOT NULL, 
	maximum INTEGER NOT NULL, 
	suspended JSON NOT NULL, 
	created_at DOUBLE NOT NULL, 
	adjusted_for VARCHAR(64), 
	last_out JSON, 
	last_in JSON, 
	last_decision TEXT, 
	decided_at DOUBLE, 
	CONSTRAINT pk_scalable_targets PRIMARY KEY (target_id), 
	CONSTRAINT uq_scalable_targets_resource_id UNIQUE (resource_id, dimension)
);
CREATE TABLE scaling_policies (
	policy_id VARCHAR(36) NOT NULL, 
	target_id VARCHAR(34) NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	arn TEXT NOT NULL, 
	policy_type VARCHAR(32) NOT NULL, 
	configuration JSON NOT NULL, 
	alarms JSON NOT NULL, 
	created_at DOUBLE NOT NULL, 
	breach JSON, 
	CONSTRAINT pk_scaling_policies PRIMARY KEY (policy_id), 
	CONSTRAINT uq_scaling_policies_target_id UNIQUE (target_id, name)
);
CREATE TABLE scheduled_actions (
	action_id VARCHAR(36) NOT NULL, 
	target_id VARCHAR(34) NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	arn TEXT NOT NULL, 
	schedule VARCHAR(1600) NOT NULL, 
	timezone VARCHAR(64), 
	starts_at DOUBLE, 
	ends_at DOUBLE, 
	minimum INTEGER, 
	maximum INTEGER, 
	created_at DOUBLE NOT NULL, 
	next_at DOUBLE, 
	ended_at DOUBLE, 
	CONSTRAINT pk_scheduled_actions PRIMARY KEY (action_id), 
	CONSTRAINT uq_scheduled_actions_target_id UNIQUE (target_id, name)
);
CREATE INDEX ix_scheduled_actions_next_at ON scheduled_actions (next_at);
CREATE TABLE scaling_activities (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	activity_id VARCHAR(36) NOT NULL, 
	resource_id VARCHAR(255) NOT NULL, 
	dimension VARCHAR(64) NOT NULL, 
	description TEXT NOT NULL, 
	cause TEXT NOT NULL, 
	started_at DOUBLE NOT NULL, 
	ended_at DOUBLE, 
	status VARCHAR(16) NOT NULL, 
	message TEXT, 
	not_scaled JSON, 
	desired INTEGER, 
	capacity INTEGER, 
	"before" INTEGER
);
CREATE INDEX ix_scaling_activities_status ON scaling_activities (status);
CREATE INDEX ix_scaling_activities_resource_id ON scaling_activities (resource_id, dimension, number);
CREATE TABLE transform_finished_objects (
	job_id VARCHAR(32) NOT NULL, 
	"key" BLOB NOT NULL, 
	failed BOOLEAN NOT NULL, 
	CONSTRAINT pk_transform_finished_objects PRIMARY KEY (job_id, "key")
);
CREATE TABLE leases (
	name VARCHAR(128) NOT NULL, 
	holder VARCHAR(255) NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	epoch BIGINT NOT NULL, 
	session VARCHAR(63) NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (name)
);
CREATE TABLE nodes (
	node_id VARCHAR(40) NOT NULL, 
	agent_address VARCHAR(300) NOT NULL, 
	peer_address VARCHAR(300) NOT NULL, 
	gateway_address VARCHAR(300) NOT NULL, 
	resources JSON NOT NULL, 
	has_control BOOLEAN NOT NULL, 
	is_draining BOOLEAN NOT NULL, 
	ray_id VARCHAR(64) NOT NULL, 
	epoch BIGINT NOT NULL, 
	seen_at DOUBLE NOT NULL, is_leaving BOOLEAN DEFAULT 0 NOT NULL, version VARCHAR(40) DEFAULT '' NOT NULL, 
	CONSTRAINT pk_nodes PRIMARY KEY (node_id)
);
CREATE TABLE cluster (
	id INTEGER NOT NULL, 
	authority TEXT NOT NULL, 
	CONSTRAINT pk_cluster PRIMARY KEY (id)
);
CREATE TABLE shared_secrets (
	name VARCHAR(64) NOT NULL, 
	value BLOB NOT NULL, 
	CONSTRAINT pk_shared_secrets PRIMARY KEY (name)
);
CREATE TABLE compatibility (
	id INTEGER NOT NULL, 
	oldest_revision VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_compatibility PRIMARY KEY (id)
);
INSERT INTO alembic_version (version_num) VALUES ('0020');
