//! Who uses the mail system: users in tiers.
